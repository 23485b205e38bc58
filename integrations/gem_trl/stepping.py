"""Play without a barrier between turns, through the step loop of TRL's colocated vLLM engine.

TRL's own call answers a whole batch of turns at once, so that all episodes wait for the slowest
environment. Where environments can block, each request enters the engine on its own instead.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection
from typing import Any

from gem_core.adapters.completions import vllm_completion
from gem_core.episodes.data import Completion
from gem_core.episodes.rollout import Request


def can_step(trainer: Any) -> bool:
    """Return whether this rank has an engine of its own that takes requests one by one."""
    if not trainer.use_vllm or trainer.vllm_mode != "colocate":
        return False
    engine = trainer.vllm_generation
    structured = "structured_outputs" in engine.generation_kwargs
    return (
        engine.tensor_parallel_size == 1 and not engine.structured_outputs_regex and not structured
    )


class SteppingPolicy:
    """A policy for `gem_core.episodes.rollout.play_many` over the engine in this process.

    Args:
        trainer: whose engine it is; the trainer's weights are sent to it first, where they changed.
        stop_ids: token ids that end a turn.
    """

    def __init__(self, trainer: Any, stop_ids: Collection[int]) -> None:
        self.generation = trainer.vllm_generation
        self.engine = self.generation.llm.llm_engine
        self.stop_ids = frozenset(stop_ids) | set(trainer.eos_token_ids)
        self._numbers = itertools.count()
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._loop: asyncio.Task[None] | None = None
        if trainer.state.global_step != trainer._last_loaded_step:  # as TRL before its own call
            self.generation.sync_weights()
            trainer._last_loaded_step = trainer.state.global_step

    async def complete(self, request: Request) -> Completion:
        """See `gem_core.episodes.rollout.Policy`."""
        name = f"gem-{next(self._numbers)}"
        self._waiting[name] = asyncio.get_running_loop().create_future()
        prompt = {"prompt_token_ids": request.prompt_ids}
        self.engine.add_request(name, prompt, self._sampling(request.max_tokens))
        if self._loop is None or self._loop.done():
            self._loop = asyncio.ensure_future(self._step())
        try:
            output = await self._waiting[name]
        finally:
            if self._waiting.pop(name, None) is not None:
                self.engine.abort_request([name])
        return vllm_completion(output.outputs[0], self.stop_ids, request.max_tokens)

    def _sampling(self, max_tokens: int) -> Any:
        """Return what TRL's own call samples by, with this turn's cap."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        engine = self.generation
        options = {
            "repetition_penalty": engine.repetition_penalty,
            "temperature": engine.temperature,
            "top_p": engine.top_p,
            "top_k": engine.top_k,
            "min_p": engine.min_p or 0.0,
            "logprobs": engine.logprobs,
            **engine.generation_kwargs,
            "max_tokens": max_tokens,
            "output_kind": RequestOutputKind.FINAL_ONLY,
        }
        return SamplingParams(**options)

    async def _step(self) -> None:
        """Step the engine while requests wait; environments answer in between."""
        try:
            while self._waiting:
                for output in self.engine.step():
                    future = self._waiting.pop(output.request_id, None)
                    if future is not None and not future.done():
                        future.set_result(output)
                await asyncio.sleep(0)
        except Exception as error:
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(error)
            self._waiting.clear()
