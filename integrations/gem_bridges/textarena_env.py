"""TextArena's games: ``textarena:<id>``, such as ``textarena:GuessTheNumber-v0``."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from gem_bridges.foreign import ForeignEnv
from gem_core.env.registration.references import resolve_function
from gem_core.errors import RecipeError, unknown

if TYPE_CHECKING:
    from gem_core.env.interface import Info, StepResult

    Opponent = Callable[[str, Random], str]

SUCCESS_REWARD = 1.0
"""TextArena's reward of a game that was won."""
_MAX_OPPONENT_TURNS = 1000


class TextArenaEnv(ForeignEnv):
    """A game of TextArena for one agent.

    The observation is what the game sent to the agent's seat since its last turn, without what the
    agent itself wrote, which suits histories that grow. TextArena gives rewards at the end only.

    Args:
        name: TextArena's id; its wrappers are not used.
        players: seats of the game.
        seat: the agent's.
        opponent: ``module:function`` that plays all other seats: from what the game sent to the
            seat, and a generator seeded by the episode, to the action. Games of one need none.
        success_reward: the reward from which on a game is a success.
        **kwargs: parameters of the game, over those of the id.

    Raises:
        MissingDependencyError: ``textarena`` is not installed.
        UnknownNameError: it has no such game.
        RecipeError: other seats and no opponent.
    """

    distribution = "textarena"

    def __init__(
        self,
        name: str,
        *,
        players: int = 1,
        seat: int = 0,
        opponent: str | None = None,
        success_reward: float = SUCCESS_REWARD,
        **kwargs: Any,
    ) -> None:
        if not 0 <= seat < players:
            raise RecipeError(f"{name}: there is no seat {seat} among {players}.")
        if players > 1 and opponent is None:
            raise RecipeError(
                f"{name}: {players} players need opponent = 'module:function', which plays the "
                "other seats."
            )
        self.players = players
        self.seat = seat
        self.success_reward = success_reward
        self._opponent: Opponent | None = (
            None if opponent is None else resolve_function(opponent, 2, "opponent")
        )
        super().__init__(name, **kwargs)
        self._arguments.update(
            players=players, seat=seat, opponent=opponent, success_reward=success_reward
        )

    def random_action(self, rng: Random) -> str:
        """Return a number in brackets: TextArena has no random actions."""
        return f"[{rng.randint(0, 9)}]"

    def _make(self) -> Any:
        import textarena
        from textarena.envs.registration import ENV_REGISTRY

        raw = f"{self.name}-raw"
        if raw not in ENV_REGISTRY:
            games = [name.removesuffix("-raw") for name in ENV_REGISTRY if name.endswith("-raw")]
            raise unknown("game of TextArena", self.name, games)
        return textarena.make(raw, **self.kwargs)

    def _foreign_reset(self, seed: int, options: dict[str, Any] | None) -> tuple[str, Info]:
        self._made.reset(num_players=self.players, seed=seed)
        self._opponent_rng = Random(seed)
        over, observation = self._next_turn(False)
        if over:
            raise RecipeError(f"{self.name}: the opponent ended the game before the agent's turn.")
        return observation, {}

    def _foreign_step(self, action: str) -> StepResult:
        done, step_info = self._made.step(action)
        over, observation = self._next_turn(bool(done))
        info = dict(step_info or {})
        if not over:
            return observation, 0.0, False, False, info
        rewards, game_info = self._made.close()
        reward = float((rewards or {}).get(self.seat, 0.0))
        details = (game_info or {}).get(self.seat, {})
        info.update(details)
        info["success"] = reward >= self.success_reward
        return observation or str(details.get("reason", "")), reward, True, False, info

    def _next_turn(self, over: bool) -> tuple[bool, str]:
        """Let the others play until it is the agent's turn; return whether the game is over."""
        for _ in range(_MAX_OPPONENT_TURNS):
            if over:
                return True, self._messages(self.seat)
            player = self._made.state.current_player_id
            if player == self.seat:
                return False, self._messages(self.seat)
            assert self._opponent is not None
            action = self._opponent(self._messages(player), self._opponent_rng)
            over = bool(self._made.step(action)[0])
        raise RecipeError(f"{self.name}: the agent has no turn after {_MAX_OPPONENT_TURNS} others.")

    def _messages(self, seat: int) -> str:
        """Take what the game has sent to a seat, without the seat's own actions."""
        state = self._made.state
        messages = state.observations.get(seat, [])
        state.observations[seat] = []
        own = "PLAYER_ACTION" if self.players == 1 else None
        lines = []
        for sender, text, kind in messages:
            if sender == seat or kind.name == own:
                continue
            role = "" if sender == -1 else state.role_mapping.get(sender, f"Player {sender}")
            lines.append(f"[{role}] {text}" if role else text)
        return "\n".join(line.strip("\n") for line in lines)
