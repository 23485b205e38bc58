"""Episodes of three turns that pay 1, 2, 3, and end in every way after the third.

A reward on the wrong turn shows in them whoever puts it there, the episode machine too, which the
reference shares with the trainers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gem_core.env.interface import Env
from gem_core.episodes.context import Context
from gem_core.episodes.data import Completion, Episode, FinishReason, StopReason
from gem_core.episodes.machine import EpisodeMachine, Limits
from gem_core.episodes.rollout import Request, play_batch
from gem_parity.frozen import _TEMPLATE, STOP_ID, _Bytes

ENDS = {
    "terminated": (Limits(), StopReason.TERMINATED),
    "timed out": (Limits(), StopReason.TRUNCATED_TURNS),
    "turn limit": (Limits(max_turns=3), StopReason.TRUNCATED_TURNS),
    "episode budget": (Limits(max_episode_tokens=24), StopReason.TRUNCATED_TOKENS),
    "full context": (Limits(max_context_tokens=24), StopReason.CONTEXT_OVERFLOW),
}
"""What ends an episode after three turns."""
REWARDS = [1.0, 2.0, 3.0]


class _Counting(Env):
    """Pays 1, 2, 3, ...; its third step may be the last."""

    def __init__(self, end: str) -> None:
        super().__init__()
        self.end = end
        self.turn = 0

    def _reset(self, options: dict[str, Any] | None) -> tuple[str, dict[str, Any]]:
        self.turn = 0
        return "obs:", {}

    def _step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.turn += 1
        last = self.turn == len(REWARDS)
        ends = (last and self.end == "terminated", last and self.end == "timed out")
        return "obs:", float(self.turn), *ends, {}


class _Fixed:
    """Answers with three tokens that depend on the episode, and a stop token."""

    def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
        return [
            Completion([10 + r.machine.index, 9, 8, STOP_ID], [-1.0] * 4, FinishReason.STOP)
            for r in requests
        ]


def play_counting() -> dict[str, list[Episode]]:
    """Return two episodes of each entry of `ENDS`, by its name; their indices are 0 to 9."""
    names = [name for name in ENDS for _ in range(2)]
    machines = [
        EpisodeMachine(
            _Counting(name),
            Context(_TEMPLATE, _Bytes()),
            ENDS[name][0],
            seed=0,
            group=number,
            index=number,
            env_id="counting",
        )
        for number, name in enumerate(names)
    ]
    episodes: dict[str, list[Episode]] = {name: [] for name in ENDS}
    for name, episode in zip(names, play_batch(machines, _Fixed()), strict=True):
        episodes[name].append(episode)
    return episodes
