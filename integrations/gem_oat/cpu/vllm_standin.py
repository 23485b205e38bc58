"""A stand-in for the part of vLLM 0.8.4 that Oat 0.2.4 uses: gem_core's engine on a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import torch
import transformers

from gem_adapters.engine_state import EngineState
from gem_adapters.support import SUPPORT
from gem_adapters.versions import (
    VERSION,
    VersionedEngines,
    count_kept_versions,
    generate_by_version,
)
from gem_core.episodes.data import Completion, Support
from gem_core.policies.engine.engine import Engine, EngineRequest
from gem_core.policies.engine.sampling import Sampling

__version__ = "0.8.4"


@dataclass
class SamplingParams:
    """The fields that Oat and the adapter set; names and meanings are vLLM's."""

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    max_tokens: int = 16
    logprobs: int | None = None
    seed: int | None = None
    stop_token_ids: Sequence[int] = ()
    extra_args: dict[str, Any] | None = None


class LoRARequest:
    """Imported by Oat, never made here."""


class Logprob(NamedTuple):
    """Log-probability of one token."""

    logprob: float


class CompletionOutput(NamedTuple):
    """One completion; ``token_ids`` includes the stop token, as vLLM's does.

    ``support`` has the tokens that could be drawn, where they were asked for; ``version`` names the
    weights that sampled them.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: list[dict[int, Logprob]] | None
    finish_reason: str
    support: Support | None
    version: int | None


class RequestOutput(NamedTuple):
    """The completions of one prompt."""

    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]


class LLM:
    """One model and the methods of ``vllm.LLM`` that Oat calls."""

    def __init__(
        self,
        model: str,
        dtype: str,
        worker_extension_cls: str,
        max_model_len: int | None = None,
        enable_prefix_caching: bool = False,
        **_: Any,
    ) -> None:
        self.state = EngineState(enable_prefix_caching)
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(model)
        loaded = transformers.AutoModelForCausalLM.from_pretrained(
            model, torch_dtype=getattr(torch, dtype)
        )
        self.model: Any = loaded.eval()
        self.engines = VersionedEngines(
            self.model, partial(Engine, max_model_len=max_model_len), count_kept_versions()
        )
        module, name = worker_extension_cls.rsplit(".", 1)
        self.worker = _worker(getattr(import_module(module), name), self.model, self.state)
        self.llm_engine = self

    def get_tokenizer(self) -> Any:
        """The tokenizer."""
        return self.tokenizer

    def collective_rpc(self, name: str, args: tuple[Any, ...] = ()) -> list[Any]:
        """Call a method of Oat's worker extension; process groups cannot be serialised."""
        result = getattr(self.worker, name)(*args)
        return [None if isinstance(result, torch.distributed.ProcessGroup) else result]

    def reset_prefix_cache(self) -> None:
        """As in vLLM."""
        self.state.reset_cache()
        self.engines.live.drop_caches()

    def sleep(self, level: int = 1) -> None:
        """As in vLLM."""
        self.state.sleep(level)

    def wake_up(self) -> None:
        """As in vLLM."""
        self.state.wake_up()

    def generate(
        self,
        prompt_token_ids: list[list[int]],
        sampling_params: list[SamplingParams],
        use_tqdm: bool = False,
    ) -> list[RequestOutput]:
        """Sample one completion per prompt; each draws from its own seed, as in vLLM."""
        self.state.ask()
        requests = [
            EngineRequest(
                prompt,
                params.max_tokens,
                frozenset(params.stop_token_ids),
                Sampling(params.temperature, params.top_p, params.top_k),
                params.seed,
                params.logprobs is not None,
                support=bool((params.extra_args or {}).get(SUPPORT)),
            )
            for prompt, params in zip(prompt_token_ids, sampling_params, strict=True)
        ]
        versions = [(params.extra_args or {}).get(VERSION) for params in sampling_params]
        completions = generate_by_version(self.engines, requests, versions)
        return [
            RequestOutput(request.prompt_ids, [self._output(completion)])
            for request, completion in zip(requests, completions, strict=True)
        ]

    def _output(self, completion: Completion) -> CompletionOutput:
        ids = completion.token_ids
        tables = None
        if completion.logprobs is not None:
            pairs = zip(ids, completion.logprobs, strict=True)
            tables = [{token: Logprob(number)} for token, number in pairs]
        return CompletionOutput(
            text=self.tokenizer.decode(ids, skip_special_tokens=True),
            token_ids=tuple(ids),
            logprobs=tables,
            finish_reason=completion.finish_reason.value,
            support=completion.support,
            version=completion.version,
        )


def _worker(extension: type, language_model: Any, state: EngineState) -> Any:
    """A vLLM worker with Oat's extension: only the loading of weights is ours."""

    class Worker(extension):
        class model_config:
            dtype = language_model.dtype

        class model_runner:
            class model:
                @staticmethod
                def load_weights(weights: list[tuple[str, torch.Tensor]]) -> None:
                    state.load()
                    parameters = dict(language_model.named_parameters())
                    for name, weight in weights:
                        parameters[name].data.copy_(weight)

        def init_process_group(self, *args: Any) -> Any:
            """Join Oat's weight group; a vLLM worker is in a group of its own before."""
            if not torch.distributed.is_initialized():
                store = torch.distributed.HashStore()
                torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
            return super().init_process_group(*args)

    return Worker()
