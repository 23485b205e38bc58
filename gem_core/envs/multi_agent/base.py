"""Games of two agents that take turns, and games against a scripted opponent."""

from __future__ import annotations

from abc import abstractmethod
from random import Random
from typing import TYPE_CHECKING

from gem_core.env.interface import _RUNNING, Env
from gem_core.env.parsing import get_parser, render
from gem_core.env.registration.references import resolve_class, resolve_function
from gem_core.env.states import check_fields
from gem_core.errors import unknown

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gem_core.env.interface import ResetResult, State, StepResult

    Opponent = Callable[["MultiAgentEnv", Random], str]
    """Chooses a legal move from the game and a generator."""
else:
    Opponent = object

WIN = 1.0
DRAW = 0.5
LOSS = 0.0
FORMAT_ERROR = -0.1
_MAX_ERRORS = 5
SEATS = ("random", "first", "second")


class MultiAgentEnv(Env):
    """A game in which two agents act in turn; each action is that of the current `agent`.

    ``step`` returns the reward of the agent that acted. ``info["rewards"]`` has the rewards of both
    agents, ``info["agent"]`` the agent that acts next; the observation is for that agent. An action
    that is not a legal move does not change the game; the fifth such action of an agent loses it.
    One policy may play both sides (self-play); with `AgainstOpponent`, the other side is scripted.

    A subclass implements `_start`, `_rules`, `_play`, `_winner`, `_board`, `legal_moves` and
    `perfect_move`, and adds its own state to `_state_fields`.

    Args:
        answer_format: the format of a move: ``"boxed"``, ``"tag"`` or ``"plain"``.
    """

    agents: tuple[str, str] = ("first", "second")

    version = 1  # 1: an empty answer does not replace one
    _state_fields: tuple[str, ...] = ("_to_move", "_errors")
    _to_move: int
    _errors: list[int]

    def __init__(self, *, answer_format: str = "boxed"):
        self.answer_format = answer_format
        self._parse = get_parser(answer_format)

    @property
    def agent(self) -> str:
        """The agent whose action is expected."""
        return self.agents[self._to_move]

    @abstractmethod
    def legal_moves(self) -> list[str]:
        """Return the moves that are legal now."""

    @abstractmethod
    def perfect_move(self, rng: Random) -> str:
        """Return a best move of the current agent."""

    @abstractmethod
    def _start(self) -> None:
        """Set up the game from ``self.rng``."""

    @abstractmethod
    def _rules(self) -> str:
        """Return the rules, without the side that the agent plays."""

    @abstractmethod
    def _play(self, move: str) -> None:
        """Make a legal move of the current agent."""

    @abstractmethod
    def _winner(self) -> int | None:
        """Return the winner, 0 or 1, -1 for a draw, or ``None`` while the game continues."""

    @abstractmethod
    def _board(self) -> str:
        """Return the position as text."""

    def _reset(self, options: dict[str, Any] | None) -> ResetResult:
        self._to_move = 0
        self._errors = [0, 0]
        self._start()
        return self._rules(), {"suffix": self._board(), "agent": self.agent}

    def _step(self, action: str) -> StepResult:
        actor = self._to_move
        move = self._parse(action)
        move = None if move is None else " ".join(move.lower().split())
        if move is None or move not in self.legal_moves():
            return self._refuse(actor, "invalid_format" if move is None else "invalid_action")
        self._play(move)
        self._to_move = 1 - actor
        text = f"The {self.agents[actor]} player played {move}."
        winner = self._winner()
        if winner is None:
            return text, 0.0, False, False, self._info([0.0, 0.0])
        result = "It is a draw." if winner < 0 else f"The {self.agents[winner]} player has won."
        return self._finish(f"{text} {result}", actor, winner)

    def _refuse(self, actor: int, error: str) -> StepResult:
        errors = list(self._errors)
        errors[actor] += 1
        self._errors = errors
        text = f"That is not a legal move. Write it like this: {self.write(self.legal_moves()[0])}"
        cost = FORMAT_ERROR if error == "invalid_format" else 0.0
        if errors[actor] >= _MAX_ERRORS:
            return self._finish(f"{text} Too many errors.", actor, 1 - actor, error, cost)
        rewards = [0.0, 0.0]
        rewards[actor] = cost
        return text, rewards[actor], False, False, {**self._info(rewards), "error": error}

    def _finish(
        self, text: str, actor: int, winner: int, error: str | None = None, cost: float = 0.0
    ) -> StepResult:
        rewards = [DRAW, DRAW] if winner < 0 else [LOSS, LOSS]
        if winner >= 0:
            rewards[winner] = WIN
        rewards[actor] += cost
        info = self._info(rewards)
        end = "draw" if winner < 0 else "decided"
        if error is not None:
            info["error"] = error
            end = "too_many_errors"
        info.update(success=winner == actor, end=end)
        return text, rewards[actor], True, False, info

    def _info(self, rewards: list[float]) -> dict[str, Any]:
        named = dict(zip(self.agents, rewards, strict=True))
        return {"suffix": self._board(), "agent": self.agent, "rewards": named}

    def is_position(self, to_move: int | None) -> bool:
        """Return whether the fields are a position of the game.

        Args:
            to_move: whose turn it has to be, in a game that is not over; ``None``: anyone's.
        """
        errors = self._errors
        return (
            self._to_move in (0, 1)
            and len(errors) == len(self.agents)
            and all(0 <= count <= _MAX_ERRORS for count in errors)
            and self._consistent()
            and (to_move is None or (self._to_move == to_move and self._winner() is None))
        )

    def write(self, move: str) -> str:
        """Return a move written in the answer format."""
        return render(move, self.answer_format)

    def random_action(self, rng: Random) -> str:
        """Return a random legal move, or any well-formed action when the game is over."""
        return self.write(rng.choice(self.legal_moves() or ["1"]))


def random_opponent(game: MultiAgentEnv, rng: Random) -> str:
    """Play any legal move."""
    return rng.choice(game.legal_moves())


def perfect_opponent(game: MultiAgentEnv, rng: Random) -> str:
    """Play a best move."""
    return game.perfect_move(rng)


OPPONENTS: dict[str, Opponent] = {"random": random_opponent, "perfect": perfect_opponent}


class AgainstOpponent(Env):
    """A two-player game against a scripted opponent, as an ordinary environment.

    The reward at the end is 1 for a win, 0.5 for a draw and 0 for a loss; an action without an
    answer costs 0.1.

    Args:
        game: ``"module:Class"`` of a `MultiAgentEnv`.
        opponent: ``"random"``, ``"perfect"``, or ``"module:function"`` of a function
            ``(game, rng) -> move``.
        seat: the side of the agent: ``"first"``, ``"second"`` or ``"random"``.
        success_at: the smallest final reward that counts as a success.
        **options: keyword arguments of the game.
    """

    _state_fields = ("_seat", "_inner")
    _seat: int

    def __init__(
        self,
        *,
        game: str,
        opponent: str = "random",
        seat: str = "random",
        success_at: float = WIN,
        **options: Any,
    ):
        if seat not in SEATS:
            raise unknown("seat", seat, SEATS, f"There are {', '.join(SEATS)}.")
        self.seat = seat
        self.success_at = success_at
        self.game: MultiAgentEnv = resolve_class(game, MultiAgentEnv, "game")(**options)
        scripted = OPPONENTS.get(opponent)
        if scripted is None and ":" not in opponent:
            raise unknown("opponent", opponent, OPPONENTS, "Or give 'module:function'.")
        self._opponent: Opponent = scripted or resolve_function(opponent, 2, "opponent")
        # A third-party game or opponent may block.
        self.slow = scripted is None or not game.startswith("gem_core.") or self.game.slow

    @property
    def answer_format(self) -> str:
        """The format of a move."""
        return self.game.answer_format

    @property
    def _inner(self) -> dict[str, Any]:
        return self.game._get_fields()

    @_inner.setter
    def _inner(self, fields: dict[str, Any]) -> None:
        self.game._set_fields(fields)

    def _reset(self, options: dict[str, Any] | None) -> ResetResult:
        self.game.rng = self.rng
        first = int(self.rng.random() * 2)
        self._seat = {"first": 0, "second": 1}.get(self.seat, first)
        rules, info = self.game._reset(options)
        side = self.game.agents[self._seat]
        text = f"{rules}\nYou are the {side} player."
        if self._seat != 0:
            moved, *_, info = self._opponent_moves()
            text = f"{text}\n{moved}"
        return text, {"suffix": info["suffix"], "seat": side}

    def _step(self, action: str) -> StepResult:
        obs, reward, over, _, info = self.game._step(action)
        error = {"error": info["error"]} if "error" in info else {}
        if not over and not error:
            moved, _, over, _, info = self._opponent_moves()
            obs = f"{obs} {moved}"
            reward = 0.0
        if not over:
            return obs, reward, False, False, {"suffix": info["suffix"], **error}
        reward = info["rewards"][self.game.agents[self._seat]]
        end = {"success": reward >= self.success_at, "end": info["end"]}
        return obs, reward, True, False, {"suffix": info["suffix"], **end, **error}

    def _opponent_moves(self) -> StepResult:
        move = self._opponent(self.game, self.rng)
        result = self.game._step(self.game.write(move))
        if "error" in result[4]:
            raise ValueError(
                f"The opponent's move {move!r:.50} is not legal; correct the opponent function."
            )
        return result

    def random_action(self, rng: Random) -> str:
        """Return a random legal move."""
        return self.game.random_action(rng)

    def peek(self) -> str:
        """Return a best move, for baselines."""
        return self.game.write(self.game.perfect_move(Random(0)))

    def _check_state(self, state: State) -> None:
        super()._check_state(state)
        if state["status"] != 0:
            inner = state["fields"].get("_inner")
            check_fields(type(self.game), self.game._state_fields, inner, started=True)

    def _consistent(self) -> bool:
        return self._seat in (0, 1) and self.game.is_position(
            None if self._status != _RUNNING else self._seat
        )

    def _restored(self) -> None:
        self.game.rng = self.rng
