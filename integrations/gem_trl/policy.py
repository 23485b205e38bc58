"""A batch policy over TRL's own generation.

``GRPOTrainer._generate_single_turn`` serves every backend: Hugging Face generate, continuous
batching, and vLLM, colocated or as a server.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from typing import Any

from accelerate.utils import gather_object

from gem_core.env.blocking import never_blocks
from gem_core.episodes.data import Completion, Episode
from gem_core.episodes.machine import EpisodeMachine
from gem_core.episodes.rollout import Request, play_batch, play_many
from gem_core.policies.completions import to_completion
from gem_trl.serving import ServerPolicy, client_of_rank, has_server
from gem_trl.stepping import SteppingPolicy, can_step
from gem_trl.vllm import awake


class EnginePolicy:
    """A batch policy over a ``GRPOTrainer``.

    With a vLLM server, tensor-parallel vLLM, DeepSpeed or FSDP, generation is a collective call:
    each rank must make it as often as the others, with as many prompts. Ranks with fewer episodes
    left add dummy prompts; a rank with none left makes dummy calls until all are done (`drain`).
    Where environments can block, a rank with an engine of its own, or with a vLLM server, sends
    each turn by itself. So it does where the engine reports which tokens could be drawn, which
    TRL's own call leaves out of its answer.

    Args:
        trainer: generates; its model is the policy.
        stop_ids: token ids that end a turn.
    """

    def __init__(self, trainer: Any, stop_ids: Sequence[int]) -> None:
        self.trainer = trainer
        self.stop_ids = frozenset(stop_ids)
        self.dummy_prompt = [min(stop_ids)]

    @property
    def coupled(self) -> bool:
        """Whether all ranks must generate together."""
        trainer = self.trainer
        if trainer.accelerator.num_processes == 1:
            return False
        if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
            return True
        if not trainer.use_vllm:
            return False
        return bool(trainer.vllm_mode == "server" or trainer.vllm_tensor_parallel_size > 1)

    def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
        """See `gem_core.episodes.rollout.BatchPolicy`."""
        prompts = [request.prompt_ids for request in requests]
        if self.coupled:
            dummies = self._most(len(prompts)) - len(prompts)
            prompts += [self.dummy_prompt] * dummies
        ids, logprobs = self._generate(prompts)
        answers = list(zip(ids, logprobs, strict=True))[: len(requests)]  # dummies come last
        return [self._completion(*row) for row in zip(requests, answers, strict=True)]

    def play(self, machines: Sequence[EpisodeMachine]) -> list[Episode]:
        """Play ``machines`` to their ends, then make dummy calls until the other ranks' end.

        Where an environment can block, no episode waits for another, if the engine allows that.
        """
        with awake(self.trainer):
            if self._goes_one_by_one(machines):
                return self._play_one_by_one(machines)
            episodes = play_batch(machines, self)
            self.drain()
        return episodes

    def _goes_one_by_one(self, machines: Sequence[EpisodeMachine]) -> bool:
        """Return whether each turn is a request of its own."""
        if self.trainer.over_drawn and self.trainer.use_vllm:
            assert can_step(self.trainer), "the recipe's other engines were refused"
            return True
        able = can_step(self.trainer) or has_server(self.trainer)
        return able and self._can_block(machines)

    def _play_one_by_one(self, machines: Sequence[EpisodeMachine]) -> list[Episode]:
        """Play without a barrier between turns."""
        count = max(1, len(machines))
        if can_step(self.trainer):
            policy = SteppingPolicy(self.trainer, self.stop_ids)
            return asyncio.run(play_many(machines, policy, concurrency=count))
        with ServerPolicy(self.trainer, self._client, self._completion, count) as server:
            return asyncio.run(play_many(machines, server, concurrency=count))

    @functools.cached_property
    def _client(self) -> Any:
        """This rank's client of the vLLM server."""
        return client_of_rank(self.trainer.vllm_generation)

    def _can_block(self, machines: Sequence[EpisodeMachine]) -> bool:
        """Return whether an environment may block; ranks that generate together agree on it."""
        blocks = not all(never_blocks(machine.env) for machine in machines)
        return bool(self._most(int(blocks))) if self.coupled else blocks

    def drain(self) -> None:
        """Make dummy calls until no episode is left on any rank."""
        while self.coupled and (count := self._most(0)):
            self._generate([self.dummy_prompt] * count)

    def _most(self, count: int) -> int:
        """Return the largest ``count`` of all ranks; a collective call."""
        return int(max(gather_object([count])))

    def _generate(self, prompts: list[list[int]]) -> tuple[list[list[int]], list[Any]]:
        """Return ids and log-probabilities (None where the backend reports none) of each prompt."""
        no_images = None
        no_fields: dict[str, Any] = {}
        one_each = 1
        ids, logprobs = self.trainer._generate_single_turn(prompts, no_images, no_fields, one_each)
        return ids, logprobs or [None] * len(prompts)

    def _completion(
        self, request: Request, answer: tuple[list[int], list[float] | None]
    ) -> Completion:
        """Cut after the first stop token, and at this turn's cap, which may be below the call's."""
        ids, logprobs = answer
        stops = [place for place, token in enumerate(ids, start=1) if token in self.stop_ids]
        end = min([request.max_tokens, len(ids), *stops[:1]])
        return to_completion(
            ids[:end],
            logprobs and logprobs[:end],
            self._finish_reason(ids[:end]),
            self.stop_ids,
            request.max_tokens,
            reports_logprobs=self.trainer.use_vllm,  # TRL reads none from transformers' generate
        )

    def _finish_reason(self, ids: list[int]) -> str | None:
        """Return "stop" for a row that ends at an end token of the model; TRL names no reason."""
        return "stop" if ids and ids[-1] in self.trainer.eos_token_ids else None
