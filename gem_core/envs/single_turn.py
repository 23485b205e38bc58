"""The base class of environments with one question and one answer."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from gem_core.env.interface import Env
from gem_core.env.parsing import get_parser, render
from gem_core.errors import GemError, unknown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random
    from typing import Any

    from gem_core.env.interface import Info, ResetResult, StepResult

REWARDS = {"success": 1.0, "fail": 0.0, "format_error": 0.0}
"""The rewards of an answer. ``success`` scales partial scores, as in the games."""
COMPAT = ("gem-0.1.0",)
PICKS = ("random", "seed")


class OptionError(GemError, ValueError):
    """An option of ``reset`` that is not possible."""


class SingleTurn(Env):
    """Base class of environments that ask one question and score one answer.

    A subclass implements `_load` (which fetches item ``self._item``), `_question` and `_score`, and
    sets ``_count``. The item is drawn from ``self.rng``, or selected:
    ``reset(options={"index": i})`` uses item ``i``.

    Args:
        answer_format: the format of an answer: ``"boxed"``, ``"tag"`` or ``"plain"``.
        rewards: replaces single entries of `REWARDS`.
        pick: ``"random"`` draws an item; ``"seed"`` uses item ``seed`` modulo the number of items
            (``-1 - seed`` for a negative seed), so that as many consecutive seeds as there are
            items visit every item exactly once, however they are divided among environments. A
            ``reset`` without a seed then uses the next item.
        compat: ``"gem-0.1.0"``: the observation is only the question, as in GEM 0.1.0, without the
            line that states the answer format.
    """

    version = 1  # 1: an empty answer replaces none; other scores of rg:* and code:*
    _state_fields: tuple[str, ...] = ("_item",)
    _item: int
    _count: int
    _from_seed: int | None = None
    _rewards: Mapping[str, float] = REWARDS

    def __init__(
        self,
        *,
        answer_format: str = "boxed",
        rewards: Mapping[str, float] | None = None,
        pick: str = "random",
        compat: str | None = None,
    ):
        if compat is not None and compat not in COMPAT:
            raise unknown("compat", compat, COMPAT, f"There is {COMPAT[0]!r}.")
        if pick not in PICKS:
            raise unknown("pick", pick, PICKS, "There are 'random' and 'seed'.")
        self.answer_format = answer_format
        self.pick = pick
        self.compat = compat
        self._parse = get_parser(answer_format)
        for name in rewards or ():
            if name not in self._rewards:
                raise unknown("reward", name, self._rewards, f"There are {', '.join(REWARDS)}.")
        if rewards:
            self._rewards = {**self._rewards, **rewards}

    @property
    def item_count(self) -> int:
        """Number of items of the data, of which this environment may play a part."""
        return self._count

    @property
    def question(self) -> str:
        """The question of this episode, without the answer format."""
        return self._question()

    def item_indices(self) -> Sequence[int]:
        """Return the items that this environment plays, in their order."""
        return range(self._count)

    def peek(self) -> str:
        """Return a right answer to the current question, for tests and baselines.

        Raises:
            NotImplementedError: the data do not have a right answer.
        """
        return self._write(self._solution())

    def random_action(self, rng: Random) -> str:
        """Return a well-formed answer that is most likely wrong."""
        return self._write(str(rng.randint(0, 99)))

    @abstractmethod
    def _load(self) -> None:
        """Fetch item number ``self._item``; called by ``reset`` and ``set_state``."""

    @abstractmethod
    def _question(self) -> str:
        """Return the text of the question."""

    @abstractmethod
    def _score(self, answer: str) -> tuple[float, dict[str, Any]]:
        """Return the score of an answer in [0, 1], and further entries of ``info``."""

    def _solution(self) -> str:
        """Return a right answer, without the answer format."""
        raise NotImplementedError(f"{self!r}: the data have no right answer to this item.")

    def _instruction(self) -> str:
        """Return the sentence that states the answer format."""
        return f"Write your final answer like this: {self._write('your answer')}"

    def _extra(self) -> Info:
        """Return the entries of ``info`` about the item, at reset and at the end."""
        return {}

    def _attachments(self) -> Info:
        """Return the entries that only the ``info`` of ``reset`` has."""
        return {}

    def _write(self, content: str) -> str:
        return render(content, self.answer_format)

    def _reset(self, options: dict[str, Any] | None) -> ResetResult:
        self._item = self._choose(options or {})
        self._from_seed = None
        self._load()
        question = self._question()
        if self.compat is None:
            question = f"{question}\n\n{self._instruction()}"
        return question, {"index": self._item, **self._extra(), **self._attachments()}

    def _seed(self, seed: int) -> None:
        super()._seed(seed)
        number = int(seed)
        self._from_seed = number if number >= 0 else -1 - number

    def _choose(self, options: dict[str, Any]) -> int:
        for name in options:
            if name != "index":
                raise unknown("option of reset", name, ("index",), "There is 'index'.")
        if "index" in options:
            return self._exact(options["index"])
        if self.pick == "random":
            return int(self.rng.random() * self._count)
        if self._from_seed is not None:
            return self._from_seed % self._count
        return (getattr(self, "_item", -1) + 1) % self._count

    def _exact(self, index: object) -> int:
        if type(index) is not int or not 0 <= index < self._count:
            raise OptionError(f"index must be from 0 to {self._count - 1}, not {index!r:.40}.")
        return index

    def _consistent(self) -> bool:
        return 0 <= self._item < self._count

    def _restored(self) -> None:
        self._load()

    def _step(self, action: str) -> StepResult:
        answer = self._parse(action)
        if answer is None:
            info = {"error": "invalid_format", "success": False, "end": "format_error"}
            obs = f"No answer was found. Write it like this: {self._write('your answer')}"
            return obs, self._rewards["format_error"], True, False, info
        score, extra = self._score(answer)
        success = score >= 1
        reward = score * self._rewards["success"] if score > 0 else self._rewards["fail"]
        info = {"success": success, "score": score, "end": "answered", **self._extra(), **extra}
        obs = "The answer is right." if success else "The answer is not right."
        return obs, reward, True, False, info
