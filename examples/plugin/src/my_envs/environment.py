"""Change: pay an amount of money exactly, coin by coin."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from gem_core.env.interface import Env
from gem_core.env.parsing import boxed, render
from gem_core.envs.parts import ALL, Items, check_part, in_part

from my_envs.coins import COINS, TURNS
from my_envs.players import Asks, Pays

if TYPE_CHECKING:
    from gem_core.env.interface import ResetResult, StepResult

_ANSWERS = [str(coin) for coin in COINS]


class Change(Env):
    """Pay an amount exactly, with one coin in each turn, in at most six turns.

    The reward is 1 for the coin that completes the amount, and -0.1 for an action that names no
    coin. A coin that is more than what is left ends the episode.

    Args:
        most: the largest amount, up to 99; the smallest is 1.
        held_out: share of the amounts that a run keeps for its evaluation.
        part: ``"train"`` or ``"eval"``: draw amounts of this part only. A run sets it; ``None``
            and ``"all"``: draw any.

    Raises:
        ValueError: there is no such amount.
    """

    players = {"expert": Pays, "asks": Asks}
    fast = True  # no call blocks
    answer_format = "boxed"
    draws_tasks = True  # seeds draw the amounts; there is no table of them
    _state_fields = ("_left", "_turn")
    _left: int
    _turn: int

    def __init__(self, *, most: int = 99, held_out: float = 0.2, part: str | None = None):
        if not 1 <= most <= 99:
            raise ValueError(f"most must be from 1 to 99, not {most}.")
        check_part(part, held_out)
        self.most = most
        self.amounts = [
            amount
            for amount in range(1, most + 1)
            if part in (None, ALL) or in_part(f"Change {amount}", part, held_out)
        ]
        if not self.amounts:
            raise ValueError(f"No amount up to {most} is in the part {part!r}: take a larger most.")

    @classmethod
    def items_played(cls, *, held_out: float = 0.2, **_: Any) -> Items:
        """Return what divides the amounts, so that a run gives each environment its part."""
        return Items(f"{cls.__module__}:{cls.__name__}", None, None, (held_out,))

    def random_action(self, rng: Random) -> str:
        """Return a coin, which may be more than what is left."""
        return render(rng.choice(_ANSWERS))

    def _reset(self, options: dict[str, Any] | None) -> ResetResult:
        self._left = self.rng.choice(self.amounts)
        self._turn = 0
        rules = (
            f"Pay exactly, in at most {TURNS} turns. In each turn name one of the coins "
            f"{', '.join(_ANSWERS)}, like this: {render('5')}. {self._left} is left to pay."
        )
        return rules, {}

    def _step(self, action: str) -> StepResult:
        self._turn += 1
        answer = boxed(action)
        if answer is None:
            return self._go_on("You named no coin.", -0.1, {"error": "invalid_format"})
        if answer not in _ANSWERS:
            return self._go_on("There is no such coin.", -0.1, {"error": "invalid_action"})
        coin = int(answer)
        if coin > self._left:
            text = f"You paid {coin}, and only {self._left} was left to pay."
            return text, 0.0, True, False, {"success": False}
        self._left -= coin
        if self._left == 0:
            return f"You paid {coin}, and nothing is left.", 1.0, True, False, {"success": True}
        return self._go_on(f"You paid {coin}.", 0.0, {})

    def _go_on(self, text: str, reward: float, info: dict[str, Any]) -> StepResult:
        """Return the result of a turn that decides nothing, unless it was the last one."""
        if self._turn == TURNS:
            info = {"success": False, **info}
            return f"{text} That was the last turn.", reward, True, False, info
        return f"{text} {self._left} is left to pay.", reward, False, False, info

    def _consistent(self) -> bool:
        return 0 <= self._left <= self.most and 0 <= self._turn <= TURNS
