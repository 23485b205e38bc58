"""Drawn trajectories as episodes that trainers take: one action token per turn.

The episode machine plays them, so that prompts, masks and spans are those of every run: the
environment shows the state, the policy says the letter of the trajectory's action, and the reward
is the trajectory's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from exact import IntArray, Trajectories

from gem_core.env.interface import Env
from gem_core.episodes.context import Context, Template
from gem_core.episodes.data import Completion, Episode, FinishReason
from gem_core.episodes.machine import EpisodeMachine, Limits
from gem_core.episodes.rollout import Request, play_batch

_TEMPLATE = Template("laboratory", "{observation}", "{observation}")
_LETTERS = "abcdefgh"


def play_trajectories(
    t: Trajectories, chosen: IntArray, group: IntArray, name: str
) -> list[Episode]:
    """Return an episode for each chosen trajectory [B], with its group [B].

    Args:
        t: all trajectories.
        chosen: the trajectory of each episode.
        group: the group of each episode.
        name: of the process, in the episodes' environment id.
    """
    machines = [
        EpisodeMachine(
            _Recorded(t, int(trajectory)),
            Context(_TEMPLATE, _Bytes()),
            Limits(max_tokens_per_turn=1, max_context_tokens=400),
            seed=int(own),
            group=int(own),
            index=index,
            env_id=f"laboratory:{name.replace(' ', '-')}",
        )
        for index, (trajectory, own) in enumerate(zip(chosen, group, strict=True))
    ]
    return play_batch(machines, _Recorder(t, chosen))


class _Bytes:
    """Byte-level tokenizer: id = byte + 2; 0 pads, 1 stops."""

    stop_ids = frozenset({1})

    def encode(self, text: str) -> list[int]:
        return [byte + 2 for byte in text.encode()]

    def decode(self, token_ids: Sequence[int]) -> str:
        return bytes(i - 2 for i in token_ids).decode()


class _Recorded(Env):
    """Shows the states of one trajectory and pays its rewards; another action is an error."""

    def __init__(self, t: Trajectories, trajectory: int) -> None:
        super().__init__()
        self.t = t
        self.first = int(t.first[trajectory])
        self.length = int(t.length[trajectory])
        self.done = 0

    def _reset(self, options: dict[str, Any] | None) -> tuple[str, dict[str, Any]]:
        self.done = 0
        return self._show(), {}

    def _step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        turn = self.first + self.done
        assert action == _LETTERS[int(self.t.action[turn])], f"{action!r} was not recorded"
        self.done += 1
        over = self.done == self.length
        text = "over" if over else self._show()
        return text, float(self.t.reward[turn]), over, False, {"success": True} if over else {}

    def _show(self) -> str:
        return f"{self.t.state[self.first + self.done]}:"


class _Recorder:
    """The policy: says the action of the trajectory, as one token after which it stops."""

    def __init__(self, t: Trajectories, chosen: IntArray) -> None:
        self.t = t
        self.chosen = chosen

    def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
        return [self._say(r.machine.index, r.machine.turn) for r in requests]

    def _say(self, index: int, turn: int) -> Completion:
        action = int(self.t.action[self.t.first[self.chosen[index]] + turn])
        token = _Bytes().encode(_LETTERS[action])
        return Completion(token, [-1.0], FinishReason.STOP)
