"""The step loop of a vLLM engine in this process as a policy: no turn waits for another.

A call for a whole batch of turns answers when the last of them has ended, so that all episodes wait
for the slowest environment and the longest answer. Here each request enters the engine on its own,
between two steps, and leaves it when it has ended.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from array import array
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from gem_core.episodes.data import Completion, Support
from gem_core.episodes.pacing import pace
from gem_core.episodes.rollout import Request
from gem_core.errors import GemError
from gem_core.policies.completions import vllm_completion


@dataclass
class Work:
    """What the engine did.

    Attributes:
        steps: its steps.
        rows: requests that were in it, summed over steps.
        seconds: wall seconds inside of its steps.
    """

    steps: int = 0
    rows: int = 0
    seconds: float = 0.0


def read_support(output: Any) -> Support | None:
    """Return the tokens that could be drawn in each place; ``None`` where vLLM was not asked.

    Args:
        output: a ``vllm.CompletionOutput``; its ``sampling_mask`` has them with the engine's option
            ``return_sampling_mask``.
    """
    mask = getattr(output, "sampling_mask", None)
    return None if mask is None else [array("i", tokens) for tokens in mask.token_ids]


class StepPolicy:
    """A policy for `gem_core.episodes.rollout.play_many`; use it in one event loop.

    Args:
        engine: ``vllm.LLM(...).llm_engine``: ``add_request``, ``abort_request``, ``step`` and
            ``has_unfinished_requests`` are used.
        sampling: gives the ``vllm.SamplingParams`` of a request; their output is the final one.
        stop_ids: token ids that end a turn.
        reports_logprobs: whether the sampling parameters ask for log-probabilities.

    Attributes:
        work: what the engine did for this policy.
    """

    def __init__(
        self,
        engine: Any,
        sampling: Callable[[Request], Any],
        stop_ids: Collection[int],
        *,
        reports_logprobs: bool = True,
    ) -> None:
        self.engine = engine
        self.stop_ids = frozenset(stop_ids)
        self.work = Work()
        self._sampling = sampling
        self._reports_logprobs = reports_logprobs
        self._numbers = itertools.count()
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._loop: asyncio.Task[None] | None = None

    async def complete(self, request: Request) -> Completion:
        """See `gem_core.episodes.rollout.Policy`; a cancelled call aborts its request.

        Raises:
            GemError: the engine lost requests, or its answer cannot be used.
        """
        name = f"gem-{next(self._numbers)}"
        prompt = {"prompt_token_ids": request.prompt_ids}
        self.engine.add_request(name, prompt, self._sampling(request))
        self._waiting[name] = asyncio.get_running_loop().create_future()
        if self._loop is None or self._loop.done():
            self._loop = asyncio.ensure_future(self._run())
        try:
            output = await self._waiting[name]
        finally:
            if self._waiting.pop(name, None) is not None:
                self.engine.abort_request([name])
        (answer,) = output.outputs
        completion = vllm_completion(
            answer, self.stop_ids, request.max_tokens, reports_logprobs=self._reports_logprobs
        )
        if completion.token_ids:
            completion.support = read_support(answer)
        return completion

    async def _run(self) -> None:
        """Step the engine while requests wait; environments answer in between."""
        try:
            while self._waiting:
                self._step()
                await asyncio.sleep(0)
                while pace().busy:  # episodes that are about to make their requests
                    await asyncio.sleep(0)
        except Exception as error:
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(error)
            self._waiting.clear()

    def _step(self) -> None:
        """Make one step, and hand over what ended in it."""
        began = time.perf_counter()
        outputs = self.engine.step()
        self.work.seconds += time.perf_counter() - began
        self.work.steps += 1
        self.work.rows += len(self._waiting)
        for output in outputs:
            future = self._waiting.pop(output.request_id, None) if output.finished else None
            if future is not None and not future.done():
                future.set_result(output)
        if self._waiting and not self.engine.has_unfinished_requests():
            raise GemError(
                f"The engine has no request any more and did not answer {len(self._waiting)} of "
                "them; install a tested version of vLLM (`gem-core doctor`)."
            )
