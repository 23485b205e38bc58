"""Episodes by TRL's own generation, and episodes as TRL's samples.

``GRPOTrainer._generate_single_turn`` serves every backend: Hugging Face generate, continuous
batching, and vLLM, colocated or as a server.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from accelerate.utils import gather_object

from gem_core.episodes.data import Completion, Episode, FinishReason
from gem_core.episodes.machine import EpisodeMachine
from gem_core.episodes.rollout import Request, play_batch


class EnginePolicy:
    """A batch policy over a ``GRPOTrainer``.

    With a vLLM server, tensor-parallel vLLM, DeepSpeed or FSDP, generation is a collective call:
    each rank must make it as often as the others, with as many prompts. Ranks with fewer episodes
    left add dummy prompts; a rank with none left keeps calling until all are done (`drain`).
    """

    def __init__(self, trainer: Any, stop_ids: Sequence[int]) -> None:
        self.trainer, self.stop_ids = trainer, frozenset(stop_ids)
        self.dummy = [min(stop_ids)]

    @property
    def coupled(self) -> bool:
        """Whether all ranks must generate together."""
        t = self.trainer
        shared = t.use_vllm and (t.vllm_mode == "server" or t.vllm_tensor_parallel_size > 1)
        sharded = t.is_deepspeed_enabled or t.is_fsdp_enabled
        return t.accelerator.num_processes > 1 and (shared or sharded)

    def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
        """See `gem_core.episodes.rollout.BatchPolicy`."""
        prompts = [request.prompt_ids for request in requests]
        if self.coupled:
            prompts += [self.dummy] * (self._most(len(prompts)) - len(prompts))
        ids, logprobs = self.trainer._generate_single_turn(prompts, None, {}, 1)
        rows = zip(requests, ids, logprobs or [None] * len(ids), strict=False)  # dummies come last
        return [self._completion(*row) for row in rows]

    def play(self, machines: Sequence[EpisodeMachine]) -> list[Episode]:
        """Play ``machines`` to their ends, then keep the other ranks company until theirs."""
        episodes = play_batch(machines, self)
        self.drain()
        return episodes

    def drain(self) -> None:
        """Keep the other ranks company until no episode is left anywhere."""
        while self.coupled and (count := self._most(0)):
            self.trainer._generate_single_turn([self.dummy] * count, None, {}, 1)

    def _most(self, count: int) -> int:
        return int(max(gather_object([count])))

    def _completion(self, request: Request, ids: list[int], logprobs: Any) -> Completion:
        """Cut after the first stop token, and at this turn's cap, which may be below the call's."""
        stop = next((i + 1 for i, token in enumerate(ids) if token in self.stop_ids), len(ids))
        end = min(stop, request.max_tokens)
        closed = ids[end - 1] in self.stop_ids
        reason = FinishReason.STOP if closed else FinishReason.LENGTH
        return Completion(list(ids[:end]), logprobs and list(logprobs[:end]), reason)


@contextmanager
def sampling_at(trainer: Any, temperature: float) -> Iterator[None]:
    """Sample at another temperature (0 = greedy) without touching training's random state."""
    if trainer.use_vllm:
        engine, fields = trainer.vllm_generation, {"temperature": temperature}
    else:
        engine = trainer.generation_config
        fields = {"do_sample": temperature > 0, "temperature": temperature or 1.0}
    before = {name: getattr(engine, name) for name in fields}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        try:
            vars(engine).update(fields)
            yield
        finally:
            vars(engine).update(before)


def to_native(episodes: Sequence[Episode], pad_id: int) -> dict[str, Any]:
    """What ``rollout_func`` returns: one sample per episode, in order."""
    rows = [_sample(episode, pad_id) for episode in episodes]
    prompts, completions, masks, logprobs = (list(column) for column in zip(*rows, strict=True))
    return {
        "prompt_ids": prompts, "completion_ids": completions, "env_mask": masks,
        "logprobs": None if None in logprobs else logprobs,
        "episode_return": [episode.total_reward for episode in episodes],
    }  # fmt: skip


def _sample(episode: Episode, pad_id: int) -> tuple[list[int], list[int], list[int], Any]:
    """``(prompt, completion, mask, logprobs)``; without an action, one pad token not learnt."""
    if not any(segment.spans for segment in episode.segments):
        prompt = episode.segments[0].token_ids if episode.segments else [pad_id]
        return prompt, [pad_id], [0], [0.0]
    (segment,) = episode.segments  # an append-only history has one
    start, logprobs = segment.prompt_length, segment.logprobs
    ids, mask = segment.token_ids, segment.loss_mask
    return ids[:start], ids[start:], mask[start:], logprobs and logprobs[start:]
