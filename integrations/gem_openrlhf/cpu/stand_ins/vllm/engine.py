"""The stand-in engine: gem_core's CPU engine, with weight updates over a TCP store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from gem_adapters.engine_state import EngineState
from gem_adapters.support import SUPPORT
from gem_adapters.versions import (
    VERSION,
    VersionedEngines,
    complete_by_version,
    count_kept_versions,
)
from gem_core.policies.engine.asynchronous import AsyncEngine
from gem_core.policies.engine.engine import Engine, EngineRequest
from gem_core.policies.engine.sampling import Sampling
from vllm.outputs import CompletionOutput, Logprob, RequestOutput, SamplingParams


class AsyncEngineArgs:
    """Keeps the engine's keyword arguments."""

    def __init__(self, **kwargs: Any) -> None:
        self.kwargs = kwargs


class AsyncLLMEngine:
    """The surface of vLLM's engine that OpenRLHF calls."""

    def __init__(self, kwargs: dict[str, Any]) -> None:
        name = kwargs["model"]
        self.model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(name)
        longest = kwargs.get("max_model_len")
        self.engines = VersionedEngines(
            self.model,
            lambda model: AsyncEngine(Engine(model, max_model_len=longest)),
            count_kept_versions(),
        )
        self.engine = self.engines.live
        self.parameters = dict(self.model.named_parameters())
        self.state = EngineState(bool(kwargs.get("enable_prefix_caching")))
        self.output_processor = SimpleNamespace(get_num_unfinished_requests=self._unfinished)

    @classmethod
    def from_engine_args(cls, args: AsyncEngineArgs) -> AsyncLLMEngine:
        """As in vLLM."""
        return cls(args.kwargs)

    async def is_sleeping(self) -> bool:
        """As in vLLM."""
        return self.state.is_sleeping

    async def sleep(self, level: int = 1) -> None:
        """As in vLLM."""
        self.state.sleep(level)

    async def wake_up(self, tags: list[str] | None = None) -> None:
        """As in vLLM."""
        self.state.wake_up(tags)

    async def reset_prefix_cache(self) -> None:
        """As in vLLM; new weights drop all caches already."""
        self.state.reset_cache()

    async def pause_generation(self, mode: str = "keep") -> None:
        """As in vLLM: requests wait until `resume_generation`."""
        await self.engine.pause()

    async def resume_generation(self) -> None:
        """As in vLLM."""
        self.engine.resume()

    async def generate(
        self, prompt: dict[str, Any], params: SamplingParams, request_id: str = ""
    ) -> AsyncIterator[RequestOutput]:
        """Yield the finished answer of one request."""
        if params.min_tokens:
            raise NotImplementedError("The stand-in has no min_tokens.")
        self.state.ask()
        extra = params.extra_args or {}
        asked = EngineRequest(
            list(prompt["prompt_token_ids"]),
            params.max_tokens,
            frozenset({*params.stop_token_ids, self.tokenizer.eos_token_id} - {None}),
            Sampling(params.temperature, params.top_p, params.top_k),
            params.seed,
            params.logprobs is not None,
            support=bool(extra.get(SUPPORT)),
        )
        completion = await complete_by_version(self.engines, asked, extra.get(VERSION))
        ids = completion.token_ids
        tables = None
        if completion.logprobs is not None:
            pairs = zip(ids, completion.logprobs, strict=True)
            tables = [{token: Logprob(number)} for token, number in pairs]
        text = self.tokenizer.decode(ids, skip_special_tokens=params.skip_special_tokens)
        output = CompletionOutput(
            text,
            ids,
            tables,
            completion.finish_reason.value,
            completion.support,
            completion.version,
        )
        yield RequestOutput(request_id, [output])

    async def collective_rpc(self, method: str, args: Sequence[Any] = ()) -> list[Any]:
        """Run one of OpenRLHF's worker methods between two steps, off the event loop."""
        return [await self.engine.update(getattr(self, f"worker_{method}"), *args)]

    def worker_init_process_group(
        self, address: str, port: int, rank: int, world: int, *_: Any
    ) -> None:
        """Join the weight-sync group."""
        from openrlhf.utils.distributed_util import stateless_init_process_group

        self.group = stateless_init_process_group(address, port, rank, world, "cpu")

    def worker_update_weight(
        self, name: str, dtype: torch.dtype, shape: Sequence[int], *_: Any
    ) -> None:
        """Receive one parameter."""
        self.state.load()
        weight = torch.empty(tuple(shape), dtype=dtype)
        self.group.broadcast(weight, src=0, stream=None)
        with torch.no_grad():
            self.parameters[name].copy_(weight)

    def _unfinished(self) -> int:
        return self.engine.unfinished
