"""What all text games share: the turn budget, the answer format, rewards and the end of an episode.

A game writes ``_start`` (draw the task), ``_rules`` (its instructions), ``_move`` (judge one
answer) and, if it has a board, ``_board``. ``_move`` returns one of ``_go_on``, ``_invalid``,
``_malformed``, ``_win`` and ``_lose``.
"""

from __future__ import annotations

from abc import abstractmethod
from sys import intern

from gem_core.core import Env
from gem_core.errors import unknown
from gem_core.parsing import get_parser, render

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gem_core.core import ResetResult, StepResult

#: GEM's ``LanguageGameReward``. ``success`` also scales partial rewards, so it is the most that
#: an episode can earn.
REWARDS = {
    "success": 1.0,
    "step": 0.0,
    "fail": 0.0,
    "invalid_action": 0.0,
    "format_error": -0.1,
}
COMPAT = ("gem-0.1.0",)


class Game(Env):
    """Base class of the text games.

    Args:
        max_turns: The turn budget, stated in the rules; invalid moves count too. ``None``: the
            game chooses it for each episode.
        answer_format: Where the answer is in an action: ``"boxed"``, ``"tag"`` or ``"plain"``.
        rewards: Replaces single entries of `REWARDS`.
        format_error_ends: Whether an action without an answer in the right form ends the episode.
        compat: ``"gem-0.1.0"`` restores what GEM 0.1.0 did where this package differs.
    """

    _state_fields: tuple[str, ...] = ("_turn", "_budget")
    _turn: int
    _budget: int
    _varies: bool  # the rules differ between episodes
    _rules_text: str | None = None

    def __init__(
        self,
        *,
        max_turns: int | None,
        answer_format: str = "boxed",
        rewards: Mapping[str, float] | None = None,
        format_error_ends: bool = True,
        compat: str | None = None,
    ):
        if max_turns is not None and max_turns < 1:
            raise ValueError(f"max_turns must be at least 1, not {max_turns}.")
        if compat is not None and compat not in COMPAT:
            raise unknown("compat", compat, COMPAT, f"There is {COMPAT[0]!r}.")
        self.max_turns = max_turns
        self._varies = max_turns is None
        self.answer_format = answer_format
        self.format_error_ends = format_error_ends
        self.compat = compat
        self._parse = get_parser(answer_format)
        self._reward = merge_rewards(rewards) if rewards else REWARDS

    def _reset(self, options: dict[str, Any] | None) -> ResetResult:
        self._turn = 0
        if self.max_turns is not None:
            self._budget = self.max_turns
        self._start()
        rules = self._rules_text
        if rules is None:
            rules = self._rules()
            if not self._varies:
                rules = self._rules_text = intern(rules)  # one text for all environments
        return rules, {"suffix": self._board()}

    def _step(self, action: str) -> StepResult:
        self._turn += 1
        answer = self._parse(action)
        if answer is None:
            return self._malformed("no answer was found in it")
        return self._move(answer)

    @abstractmethod
    def _start(self) -> None:
        """Draw the task of an episode; set ``_budget`` if ``max_turns`` is ``None``."""

    @abstractmethod
    def _rules(self) -> str:
        """Return the instructions."""

    @abstractmethod
    def _move(self, answer: str) -> StepResult:
        """Judge one answer."""

    def _board(self) -> str:
        """Return the text that shows where the game stands."""
        return ""

    def _limit_reward(self, reward: float, valid: bool) -> float:
        """Return the reward of the step that used up the budget; ``reward`` is its own."""
        return reward

    def _answer(self, content: str) -> str:
        """Write ``content`` in the answer format."""
        return render(content, self.answer_format)

    def _go_on(self, obs: str, reward: float) -> StepResult:
        """A legal move that does not decide the game."""
        if self._turn >= self._budget:
            return self._out_of_turns(obs, reward, {})
        return obs, reward, False, False, {"suffix": self._board()}

    def _invalid(self, why: str) -> StepResult:
        """A well-formed answer that is not a legal move. ``why`` is a sentence."""
        obs = f"Turn {self._turn}: invalid move. {why}"
        reward = self._reward["invalid_action"]
        info = {"error": "invalid_action"}
        if self._turn >= self._budget:
            return self._out_of_turns(obs, reward, info)
        return obs, reward, False, False, {"suffix": self._board(), **info}

    def _malformed(self, why: str) -> StepResult:
        """An action without an answer in the right form. ``why`` is part of a sentence."""
        example = self._answer(self._example())
        obs = f"Turn {self._turn}: your action was not understood: {why}. Write it like {example}."
        reward = self._reward["format_error"]
        info: dict[str, Any] = {"error": "invalid_format"}
        if self.format_error_ends:
            info.update(suffix=self._board(), success=False, end="format_error")
            return obs, reward, True, False, info
        if self._turn >= self._budget:
            return self._out_of_turns(obs, reward, info)
        info["suffix"] = self._board()
        return obs, reward, False, False, info

    def _win(self, obs: str, reward: float) -> StepResult:
        """The task is solved."""
        return obs, reward, True, False, {"suffix": self._board(), "success": True, "end": "solved"}

    def _lose(self, obs: str, reward: float, end: str) -> StepResult:
        """The task cannot be solved any more; ``end`` says why in one word."""
        return obs, reward, True, False, {"suffix": self._board(), "success": False, "end": end}

    def _out_of_turns(self, obs: str, reward: float, info: dict[str, Any]) -> StepResult:
        reward = self._limit_reward(reward, "error" not in info)
        info.update(suffix=self._board(), success=False, end="max_turns")
        return f"{obs} All {self._budget} turns are used up.", reward, True, False, info

    @abstractmethod
    def _example(self) -> str:
        """Return a fixed well-formed answer for the instructions and error messages."""


def merge_rewards(rewards: Mapping[str, float]) -> dict[str, float]:
    """Return `REWARDS` with some entries replaced.

    Raises:
        UnknownNameError: There is no such entry.
    """
    for name in rewards:
        if name not in REWARDS:
            raise unknown("reward", name, REWARDS, f"There are {', '.join(REWARDS)}.")
    return {**REWARDS, **rewards}


def parse_int(text: str) -> int | None:
    """Return the integer that ``text`` is, or ``None``; never slow, whatever the text.

    >>> parse_int("-7"), parse_int("7.5"), parse_int("9" * 1000)
    (-7, None, None)
    """
    if len(text) > 12:
        return None
    try:
        return int(text)
    except ValueError:
        return None
