"""What the evaluation uses of SGLang 0.5.2, over gem_core's engine; other names are errors.

It is not on the path of the tests, only on that of the processes that they start.
"""

from __future__ import annotations

import asyncio
import json

from sglang.srt.sampling.sampling_params import SamplingParams

__version__ = "0.0.stand-in"


class Engine:
    """Loads a model of transformers; answers requests in the order in which they come."""

    def __init__(self, *, model_path, revision, dtype, skip_tokenizer_init, random_seed, port):
        import torch
        import transformers

        from gem_core.policies.engine.engine import Engine as Own

        assert skip_tokenizer_init and revision is None
        print(json.dumps({"random_seed": random_seed, "port": port}), flush=True)
        torch.set_num_threads(1)
        loaded = transformers.AutoModelForCausalLM.from_pretrained(model_path)
        self.own = Own(loaded.to(getattr(torch, dtype)))
        torch.manual_seed(random_seed)

    async def async_generate(self, prompt=None, sampling_params=None, input_ids=None):
        """Return what the engine returns without ``return_logprob`` and without a tokenizer."""
        from gem_core.policies.engine.engine import EngineRequest
        from gem_core.policies.engine.sampling import Sampling

        assert prompt is None
        asked = SamplingParams(**sampling_params)
        assert asked.no_stop_trim and not asked.ignore_eos
        sampling = Sampling(asked.temperature, asked.top_p, asked.top_k)
        stops = frozenset(asked.stop_token_ids)
        request = EngineRequest(input_ids, asked.max_new_tokens, stops, sampling, None)
        await asyncio.sleep(0)
        (answer,) = self.own.generate([request])
        ids = answer.token_ids
        reason = {"type": "stop" if ids[-1] in stops else "length"}
        return {"output_ids": ids, "meta_info": {"finish_reason": reason}}
