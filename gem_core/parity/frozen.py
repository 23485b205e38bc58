"""A frozen batch of episodes with unusual shapes, made by the episode machine.

Different numbers of turns, dense and terminal rewards, invalid actions, a turn limit, a token cap,
an episode budget and an environment that raises. Token ids are random but valid; no model samples
them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from gem_core.core import Env
from gem_core.episodes.context import Context, Template
from gem_core.episodes.data import Completion, Episode, FinishReason
from gem_core.episodes.machine import EpisodeMachine, Limits
from gem_core.episodes.rollout import Request, play_batch

STOP_ID = 1
_TEMPLATE = Template("frozen", "{observation}", "{observation}")


class _Bytes:
    """Byte-level tokenizer: id = byte + 2; 0 pads, 1 stops."""

    stop_ids = frozenset({STOP_ID})

    def encode(self, text: str) -> list[int]:
        return [byte + 2 for byte in text.encode()]

    def decode(self, token_ids: Sequence[int]) -> str:
        return bytes(i - 2 for i in token_ids if i >= 2).decode(errors="replace")


class _Scripted(Env):
    """Returns random short texts and rewards until its script ends, or raises."""

    def __init__(self, turns: int, dense: bool, raises: bool) -> None:
        super().__init__()
        self.turns = turns
        self.dense = dense
        self.raises = raises
        self.done = 0

    def _reset(self, options: dict[str, Any] | None) -> tuple[str, dict[str, Any]]:
        self.done = 0
        return f"start {self.rng.randrange(100)}:", {}

    def _step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.done += 1
        over = self.done >= self.turns
        if over and self.raises:
            raise RuntimeError("scripted fault")
        reward = round(self.rng.uniform(-1, 1), 3) if self.dense or over else 0.0
        info = {"success": reward > 0.5} if over else {}
        return f"obs {self.rng.randrange(100)}:", reward, over, False, info


class _RandomTokens:
    """A batch policy that returns random valid ids; every fifth completion is cut at its cap."""

    def __init__(self, rng: random.Random, vocab: int) -> None:
        self.rng = rng
        self.vocab = vocab
        self.made = 0

    def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
        return [self._one(request.max_tokens) for request in requests]

    def _one(self, cap: int) -> Completion:
        self.made += 1
        cut = cap == 1 or self.made % 5 == 0
        count = cap if cut else self.rng.randint(1, cap - 1)
        ids = [self.rng.randrange(2, self.vocab) for _ in range(count)]
        logprobs = [-self.rng.random() for _ in range(count)]
        if cut:
            return Completion(ids, logprobs, FinishReason.LENGTH)
        return Completion([*ids, STOP_ID], [*logprobs, -0.5], FinishReason.STOP)


def frozen_episodes(
    count: int = 16, *, group_size: int = 2, seed: int = 0, vocab: int = 258
) -> list[Episode]:
    """Make the frozen batch, which is the same for the same arguments on every machine.

    Args:
        count: number of episodes; every seventh one raises, and limits cut some others.
        group_size: number of adjacent episodes that share a group.
        seed: seed of the scripts and the tokens.
        vocab: upper bound of the token ids.
    """
    rng = random.Random(seed)
    machines = []
    for number in range(count):
        env = _Scripted(rng.randint(1, 5), dense=number % 2 == 0, raises=number % 7 == 6)
        limits = Limits(
            max_tokens_per_turn=6,
            max_turns=3 if number % 4 == 1 else None,
            max_episode_tokens=25 if number % 5 == 3 else None,
            max_context_tokens=200,
        )
        group = number // group_size
        machines.append(
            EpisodeMachine(
                env,
                Context(_TEMPLATE, _Bytes()),
                limits,
                seed=seed * 1000 + group,
                group=group,
                index=number,
                env_id=f"frozen:{'dense' if number % 2 == 0 else 'terminal'}",
            )
        )
    return play_batch(machines, _RandomTokens(rng, vocab))
