"""An episode that a person plays: what happened so far, the expert's advice, and a way back."""

from __future__ import annotations

from typing import Any, NamedTuple

from gem_core.env.interface import Env
from gem_core.episodes.context import with_suffix
from gem_core.errors import GemError


class Played(NamedTuple):
    """A turn that was played.

    Attributes:
        action: what was sent.
        reward: of the turn.
    """

    action: str
    reward: float


class PlaySession:
    """One episode.

    Args:
        env: the environment.
        env_id: its id, for the expert.
        seed: of the episode, and of the expert's own choices.

    Attributes:
        turns: played so far, those that were taken back left out.
        over: whether the episode has ended.
    """

    def __init__(self, env: Env, env_id: str, seed: int) -> None:
        self.env = env
        self.env_id = env_id
        self.seed = seed
        self.turns: list[Played] = []
        self.over = False
        self._shown: list[tuple[str, dict[str, Any]]] = [env.reset(seed=seed)]
        self._states: list[Any] = []

    @property
    def observation(self) -> str:
        """What the environment shows now."""
        return with_suffix(*self._shown[-1])

    @property
    def latest(self) -> tuple[str, dict[str, Any]]:
        """The last result of the environment: observation and info."""
        return self._shown[-1]

    @property
    def instructions(self) -> str:
        """What the environment showed first."""
        return with_suffix(*self._shown[0])

    @property
    def total(self) -> float:
        """Sum of the rewards."""
        return sum(turn.reward for turn in self.turns)

    @property
    def success(self) -> bool:
        """Whether the episode ended with success."""
        return self.over and bool(self._shown[-1][1].get("success"))

    def step(self, action: str) -> Played:
        """Play one action."""
        self._states.append(self._state())
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._shown.append((observation, info))
        self.turns.append(Played(action, reward))
        self.over = terminated or truncated
        return self.turns[-1]

    def undo(self) -> None:
        """Take the last turn back, also one that ended the episode.

        Raises:
            GemError: nothing was played, or the environment cannot restore a state.
        """
        if not self.turns:
            raise GemError("Nothing was played yet.")
        state = self._states[-1]
        if isinstance(state, Exception):
            raise GemError(f"{self.env_id} cannot take a turn back: {state}")
        self.env.set_state(state)
        self._states.pop()
        self._shown.pop()
        self.turns.pop()
        self.over = False

    def hint(self) -> str:
        """Return what the expert would do now.

        The expert is asked as if it had watched the whole episode, so that its advice rests on what
        was really played.

        Raises:
            UnknownNameError: the environment has no expert.
            GemError: the expert cannot read what it was shown.
        """
        from gem_core.envs.players import get_player

        player = get_player("expert", self.env_id, seed=self.seed, env=self.env)
        player.reset(*self._shown[0])
        advice = ""
        for observation, info in self._shown:
            advice = player.act(observation, info)
        return advice

    def _state(self) -> Any:
        """Return the state, or why there is none."""
        try:
            return self.env.get_state()
        except (NotImplementedError, GemError) as error:
            return error
