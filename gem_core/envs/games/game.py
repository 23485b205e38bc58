"""The base class of the text games: turn budget, answer format, rewards and end of an episode.

A game implements `_start` (draw the task), `_rules` (the instructions), `_move` (judge one answer)
and, if it has a board, `_board`. `_move` returns the result of one of `_continue`, `_invalid`,
`_malformed`, `_win` and `_lose`.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from functools import partial
from sys import intern
from typing import TYPE_CHECKING

from gem_core.env.interface import Env
from gem_core.env.parsing import form_parser, get_parser, render, simple_answers
from gem_core.envs.games.numbers import without_long_numbers
from gem_core.envs.parts import Items, check_part, in_part
from gem_core.errors import GemError, unknown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gem_core.env.interface import ResetResult, StepResult
    from gem_core.env.parsing import Parser

REWARDS = {
    "success": 1.0,
    "step": 0.0,
    "fail": 0.0,
    "invalid_action": 0.0,
    "format_error": -0.1,
}
"""GEM's ``LanguageGameReward``. ``success`` also scales partial rewards, so it is the most that
an episode can earn."""
COMPAT = ("gem-0.1.0",)
_MOST_DRAWS = 1000
"""Initial states that are drawn for one of a part."""


class Game(Env):
    """Base class of the text games.

    Args:
        max_turns: the turn budget, which the rules state; invalid moves count too. ``None``: the
            game chooses it for each episode.
        answer_format: the format of an answer: ``"boxed"``, ``"tag"`` or ``"plain"``.
            The last answer that is complete, not empty and in the game's form counts.
        rewards: replaces single entries of `REWARDS`.
        format_error_ends: whether an action without an answer in the right form ends the episode.
        compat: ``"gem-0.1.0"`` restores what GEM 0.1.0 did where this package differs.
        held_out: share of the initial states that are kept for evaluation, so that no task of a
            run's evaluation is also trained on: each state's own hash decides. ``None``: none are.
        part: ``"train"`` or ``"eval"``: starts only in this part of the states; a run gives each of
            its environments its part. ``None`` and ``"all"``: in any.
    """

    draws_tasks = True
    """Seeds draw the tasks, also where ``items_played`` divides them: there is no table."""
    version = 1  # 1: the last answer in the right form counts, not the last one
    _state_fields: tuple[str, ...] = ("_turn", "_budget")
    _turn: int
    _budget: int
    _varies: bool  # the rules differ between episodes
    _rules_text: str | None = None
    _gem_form: str = ""
    """The answers that GEM 0.1.0 reads, as a regular expression: with ``compat`` the last one that
    matches counts. Empty: the same as without ``compat``."""
    _gem_ignores_case: bool = False

    def __init__(
        self,
        *,
        max_turns: int | None,
        answer_format: str = "boxed",
        rewards: Mapping[str, float] | None = None,
        format_error_ends: bool = True,
        compat: str | None = None,
        held_out: float | None = None,
        part: str | None = None,
    ):
        self.held_out = held_out
        self.part = check_part(part, held_out)
        if max_turns is not None and max_turns < 1:
            raise ValueError(f"max_turns must be at least 1, not {max_turns}.")
        if compat is not None and compat not in COMPAT:
            raise unknown("compat", compat, COMPAT, f"There is {COMPAT[0]!r}.")
        self.max_turns = max_turns
        self._varies = max_turns is None
        self.answer_format = answer_format
        self.format_error_ends = format_error_ends
        self.compat = compat
        self._parse = self._gem_parser() if compat and self._gem_form else get_parser(answer_format)
        self._reward = merge_rewards(rewards) if rewards else REWARDS

    @classmethod
    def items_played(cls, *, held_out: float | None = None, **_: Any) -> Items | None:
        """Return what divides the initial states; ``None`` where nothing does."""
        return None if held_out is None else Items(cls.__name__, None, None, (held_out,))

    def _consistent(self) -> bool:
        return 0 <= self._turn <= self._budget

    def _reset(self, options: dict[str, Any] | None) -> ResetResult:
        self._turn = 0
        if self.max_turns is not None:
            self._budget = self.max_turns
        self._start()
        if self.part is not None:
            self._start_in_part(self.part)
        rules = self._rules_text
        if rules is None:
            rules = self._rules()
            if not self._varies:
                rules = intern(rules)  # one text for all environments
                self._rules_text = rules
        return rules, {"suffix": self._board()}

    def _start_in_part(self, part: str) -> None:
        """Draw the task again until its state is in the part.

        Raises:
            GemError: there seems to be none; the game has few initial states, or one.
        """
        for _ in range(_MOST_DRAWS):
            state = json.dumps([getattr(self, field) for field in self._state_fields])
            if in_part(f"{type(self).__name__} {state}", part, self.held_out or 0.0):
                return
            self._start()
        raise GemError(
            f"{type(self).__name__}: {_MOST_DRAWS} initial states were drawn and none is in the "
            f"part {part!r}: give it parameters with more of them, or another held_out."
        )

    def _step(self, action: str) -> StepResult:
        self._turn += 1
        answer = self._parse(action)
        if answer is None:
            return self._malformed("no answer was found in it")
        result = self._move(answer)
        if result[4].get("error") == "invalid_format" and self.compat is None:
            return self._earlier_answer(action, result)
        return result

    def _earlier_answer(self, action: str, last: StepResult) -> StepResult:
        """Judge the last answer in the right form; return ``last`` if there is none."""
        for answer in simple_answers(action, self.answer_format):
            result = self._move(answer)
            if result[4].get("error") != "invalid_format":
                return result
        return last

    def _gem_parser(self) -> Parser:
        parser = form_parser(self._gem_form, self.answer_format, self._gem_ignores_case)
        return partial(without_long_numbers, parser)

    @abstractmethod
    def _start(self) -> None:
        """Draw the task of an episode; set ``_budget`` if ``max_turns`` is ``None``."""

    @abstractmethod
    def _rules(self) -> str:
        """Return the instructions."""

    @abstractmethod
    def _move(self, answer: str) -> StepResult:
        """Judge one answer. If it is malformed, the game must not change."""

    def _board(self) -> str:
        """Return the text that shows the state of the game."""
        return ""

    def _limit_reward(self, reward: float, valid: bool) -> float:
        """Return the reward of the step that used up the budget.

        Args:
            reward: the reward of the step itself.
            valid: whether the action of the step was a legal move.
        """
        return reward

    def _answer(self, content: str) -> str:
        """Return ``content`` written in the answer format."""
        return render(content, self.answer_format)

    def _continue(self, obs: str, reward: float) -> StepResult:
        """Return the result of a legal move that does not decide the game."""
        if self._turn >= self._budget:
            return self._out_of_turns(obs, reward, {})
        return obs, reward, False, False, {"suffix": self._board()}

    def _invalid(self, why: str) -> StepResult:
        """Return the result of an answer that is not a legal move. ``why`` is a sentence."""
        obs = f"Turn {self._turn}: invalid move. {why}"
        reward = self._reward["invalid_action"]
        info = {"error": "invalid_action"}
        if self._turn >= self._budget:
            return self._out_of_turns(obs, reward, info)
        return obs, reward, False, False, {"suffix": self._board(), **info}

    def _malformed(self, why: str) -> StepResult:
        """Return the result of an action without a well-formed answer. ``why`` is a clause."""
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
        """Return the result of the move that solves the task."""
        return obs, reward, True, False, {"suffix": self._board(), "success": True, "end": "solved"}

    def _lose(self, obs: str, reward: float, end: str) -> StepResult:
        """Return the result of a move after which the task is lost; ``end`` is the reason."""
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
        UnknownNameError: there is no such entry.
    """
    for name in rewards:
        if name not in REWARDS:
            raise unknown("reward", name, REWARDS, f"There are {', '.join(REWARDS)}.")
    return {**REWARDS, **rewards}
