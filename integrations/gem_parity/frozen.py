"""A frozen batch of episodes with unusual shapes, made by the episode machine.

Different numbers of turns, dense and terminal rewards, cut actions, a turn limit, an episode
budget, a full context, a time limit of the environment (each with a reward in the last turn) and an
environment that raises. Token ids are random but valid; no model samples them.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from gem_core.env.interface import Env
from gem_core.episodes.context import Compact, Context, History, Template
from gem_core.episodes.data import Completion, Episode, FinishReason, Support
from gem_core.episodes.machine import EpisodeMachine, Limits
from gem_core.episodes.rollout import Request, play_batch

STOP_ID = 1
_TEMPLATE = Template("frozen", "{observation}", "{observation}")


class FrozenBatch(NamedTuple):
    """Episodes, and the machines that played them.

    Attributes:
        episodes: in task order.
        machines: of the episodes; they know the states in which limits cut them.
    """

    episodes: list[Episode]
    machines: list[EpisodeMachine]


class _Bytes:
    """Byte-level tokenizer: id = byte + 2; 0 pads, 1 stops."""

    stop_ids = frozenset({STOP_ID})

    def encode(self, text: str) -> list[int]:
        return [byte + 2 for byte in text.encode()]

    def decode(self, token_ids: Sequence[int]) -> str:
        return bytes(i - 2 for i in token_ids if i >= 2).decode(errors="replace")


class _Scripted(Env):
    """Returns random short texts and rewards until its script ends, or raises."""

    def __init__(self, turns: int, dense: bool, raises: bool, timed: bool = False) -> None:
        super().__init__()
        self.turns = turns
        self.dense = dense
        self.raises = raises
        self.timed = timed
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
        timed_out = over and self.timed
        return f"obs {self.rng.randrange(100)}:", reward, over and not timed_out, timed_out, info


class _RandomTokens:
    """A batch policy that returns random valid ids; every fifth completion is cut at its cap.

    Args:
        rng: draws the tokens.
        vocab: upper bound of the ids.
        sets: draws which tokens could be drawn; ``None`` = that is not reported.
    """

    def __init__(self, rng: random.Random, vocab: int, sets: random.Random | None) -> None:
        self.rng = rng
        self.vocab = vocab
        self.sets = sets
        self.made = 0

    def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
        return [self._one(request.max_tokens) for request in requests]

    def _one(self, cap: int) -> Completion:
        self.made += 1
        cut = cap == 1 or self.made % 5 == 0
        count = cap if cut else self.rng.randint(1, cap - 1)
        ids = [self.rng.randrange(2, self.vocab) for _ in range(count)]
        logprobs = [-self.rng.random() for _ in range(count)]
        if not cut:
            ids, logprobs = [*ids, STOP_ID], [*logprobs, -0.5]
        reason = FinishReason.LENGTH if cut else FinishReason.STOP
        return Completion(ids, logprobs, reason, support=self._support(ids))

    def _support(self, ids: Sequence[int]) -> Support | None:
        """Return random sets with the tokens themselves; in every fourth place nothing is cut."""
        sets = self.sets
        if sets is None:
            return None
        return [
            array("i", sorted({token, *sets.sample(range(self.vocab), sets.randint(1, 40))}))
            if sets.randrange(4)
            else None
            for token in ids
        ]


def frozen_episodes(
    count: int = 16,
    *,
    group_size: int = 2,
    seed: int = 0,
    vocab: int = 258,
    history: History = "append",
    compact: Compact | None = None,
    support: bool = False,
) -> list[Episode]:
    """Return the episodes of `frozen_batch`."""
    sizes = {"group_size": group_size, "seed": seed, "vocab": vocab}
    batch = frozen_batch(count, **sizes, history=history, compact=compact, support=support)
    return batch.episodes


def frozen_batch(
    count: int = 16,
    *,
    group_size: int = 2,
    seed: int = 0,
    vocab: int = 258,
    first: int = 0,
    history: History = "append",
    compact: Compact | None = None,
    support: bool = False,
) -> FrozenBatch:
    """Make the frozen batch, which is the same for the same arguments on every machine.

    Args:
        count: number of episodes; every seventh one raises, and limits cut some others.
        group_size: number of adjacent episodes that share a group.
        seed: seed of the scripts and the tokens.
        vocab: upper bound of the token ids.
        first: task of the first episode, a multiple of ``group_size``.
        history: of the contexts; ``window`` keeps one turn.
        compact: goes with ``compact``.
        support: whether tokens come with sets of those that could be drawn, as with top-k.
    """
    rng = random.Random(seed)
    context = partial(Context, _TEMPLATE, _Bytes(), history, 1 if history == "window" else None)
    machines = [
        _machine(number, rng, group_size, seed, first, context(compact)) for number in range(count)
    ]
    sets = random.Random(f"{seed}/support") if support else None
    return FrozenBatch(play_batch(machines, _RandomTokens(rng, vocab, sets)), machines)


def _machine(
    number: int, rng: random.Random, group_size: int, seed: int, first: int, context: Context
) -> EpisodeMachine:
    """Return the machine of one episode; its number decides the limit that cuts it."""
    dense = number % 4 != 3
    env = _Scripted(rng.randint(1, 5), dense, raises=number % 7 == 6, timed=number % 8 == 2)
    limits = Limits(
        max_tokens_per_turn=6,
        max_turns=3 if number % 4 == 1 else None,
        max_episode_tokens=25 if number % 5 == 3 else None,
        max_context_tokens=24 if number % 8 == 4 else 200,
    )
    group = (first + number) // group_size
    return EpisodeMachine(
        env,
        context,
        limits,
        seed=seed * 1000 + group,
        group=group,
        index=first + number,
        env_id="frozen:dense" if dense else "frozen:terminal",
    )
