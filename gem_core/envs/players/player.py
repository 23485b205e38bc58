"""The interface of a player, the players of any environment, and one episode of a player."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from random import Random
from typing import Any, ClassVar, NamedTuple

from gem_core.env.interface import Env
from gem_core.env.parsing import render
from gem_core.errors import GemError


class Player(ABC):
    """Chooses actions from observations.

    A player learns what happened only from ``obs`` and ``info``, as an agent does, and never from
    its own actions: another action may have been played instead of the one that it returned, a
    random one for example. It has to be shown the result of every action of the episode.

    Args:
        rng: the player's own generator.
        answer_format: the format of actions, the same as the environment's.
    """

    def __init__(self, rng: Random, answer_format: str = "boxed"):
        self.rng = rng
        self.answer_format = answer_format

    env_options: ClassVar[tuple[str, ...]] = ("answer_format",)
    """Options that the environment has too, as attributes: `get_player` uses its values."""
    version: ClassVar[int] = 0
    """Increased when a player acts differently than before on the same observations."""

    def reset(self, obs: str, info: dict[str, Any]) -> None:  # noqa: B027
        """Begin an episode; the arguments are the result of the environment's ``reset``.

        A player that keeps nothing of an episode does not define it.
        """

    @abstractmethod
    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Return the action after the latest observation, at first that of ``reset``."""

    def sum_up(self) -> str:
        """Return a summary of what the player knows, for a context that begins again with it.

        A warm start imitates it where the policy is asked for one (``context.history =
        "compact"``). Empty, as here: the player does not sum up, and nothing is imitated.
        """
        return ""

    def answer(self, content: object) -> str:
        """Return an action that consists only of an answer, in the answer format."""
        return render(str(content), self.answer_format)

    def find(self, pattern: str | re.Pattern[str], text: str) -> re.Match[str]:
        """Return the first match of a regular expression, compiled or not, in an observation.

        Raises:
            GemError: there is none, see `unreadable`.
        """
        match = re.search(pattern, text)
        if match is None:
            raise self.unreadable(text)
        return match

    def unreadable(self, text: str) -> GemError:
        """Build the error for an observation that the player cannot read."""
        return GemError(f"{type(self).__name__} cannot read this observation: {text!r:.200}")


class RandomPlayer(Player):
    """Plays the random actions of the environment."""

    def __init__(self, env: Env, rng: Random):
        super().__init__(rng)
        self.env = env

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Return a random well-formed action."""
        return self.env.random_action(self.rng)


class Peek(Player):
    """Plays the right answer, as an upper bound where no strategy can find it.

    Unlike other experts, it reads the environment (``env.peek()``) instead of the observation.
    """

    env_options = ()

    def __init__(self, rng: Random, env: Env):
        super().__init__(rng)
        self.env = env

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Return the right answer.

        Raises:
            NotImplementedError: the data do not have a right answer.
        """
        answer: str = self.env.unwrapped.peek()  # type: ignore[attr-defined]
        return answer


class Result(NamedTuple):
    """The result of an episode.

    Attributes:
        reward: undiscounted sum of the rewards.
        turns: number of turns.
        success: the environment's ``info["success"]``.
    """

    reward: float
    turns: int
    success: bool


def play_episode(env: Env, player: Player, *, seed: int | None = None, limit: int = 1000) -> Result:
    """Play one episode and return its result.

    Raises:
        GemError: the episode did not end within ``limit`` turns.
    """
    obs, info = env.reset(seed=seed)
    player.reset(obs, info)
    total = 0.0
    for turn in range(1, limit + 1):
        obs, reward, terminated, truncated, info = env.step(player.act(obs, info))
        total += reward
        if terminated or truncated:
            return Result(total, turn, bool(info["success"]))
    raise GemError(f"{env!r} did not end within {limit} turns; raise the limit.")
