"""What the evaluation uses of vLLM, over gem_core's engine; a variable puts faults in.

It is not on the path of the tests, only on that of the process that they start.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from types import SimpleNamespace

from vllm.sampling_params import SamplingParams

__all__ = ["LLM", "SamplingParams"]
__version__ = "0.0.stand-in"
FAULT = os.environ.get("STAND_IN_FAULT", "")


class LLM:
    """Loads a model of transformers; unknown arguments are errors."""

    def __init__(
        self,
        *,
        model,
        revision,
        tokenizer_revision,
        dtype,
        max_model_len,
        generation_config,
        enforce_eager,
        enable_chunked_prefill,
    ):
        import torch
        import transformers

        from gem_core.policies.engine.engine import Engine

        if FAULT == "load":
            raise RuntimeError("no memory for the engine")
        torch.set_num_threads(1)
        loaded = transformers.AutoModelForCausalLM.from_pretrained(model)
        loaded = loaded.to(getattr(torch, dtype))
        self.llm_engine = StepEngine(Engine(loaded, max_model_len=max_model_len))


class StepEngine:
    """vLLM's step loop."""

    def __init__(self, engine):
        self.engine = engine
        self.names = {}

    def add_request(self, name, prompt, params):
        from gem_core.policies.engine.engine import EngineRequest
        from gem_core.policies.engine.sampling import Sampling

        sampling = Sampling(params.temperature, params.top_p, params.top_k)
        assert params.ignore_eos and not params.detokenize and params.output_kind == "final"
        number = self.engine.add(
            EngineRequest(
                prompt["prompt_token_ids"],
                params.max_tokens,
                frozenset(params.stop_token_ids),
                sampling,
                params.seed,
            )
        )
        self.names[number] = name

    def abort_request(self, names):
        for number, name in list(self.names.items()):
            if name in names:
                self.engine.abort(number)
                del self.names[number]

    def has_unfinished_requests(self):
        return bool(self.names)

    def step(self):
        fault()
        ended = self.engine.advance()
        return [
            SimpleNamespace(request_id=self.names.pop(number), finished=True, outputs=[row(answer)])
            for number, answer in ended.items()
        ]


def row(answer):
    return SimpleNamespace(
        token_ids=answer.token_ids, logprobs=None, finish_reason=answer.finish_reason.value
    )


def fault():
    if FAULT == "killed":
        print("the last line before the end", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if FAULT == "leaves":
        os._exit(0)
    if FAULT == "hangs":
        print(f"hangs in {os.getpid()}", file=sys.stderr, flush=True)
        time.sleep(300)
