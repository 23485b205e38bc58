"""The interface of a player, the registry of experts, and the random player."""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module
from random import Random
from typing import Any, ClassVar, NamedTuple

from gem_core.env.interface import Env
from gem_core.env.parsing import render
from gem_core.errors import GemError, unknown

_HERE = "gem_core.envs.players"
EXPERTS: dict[str, str] = {
    "game:Crosswords": f"{_HERE}.crosswords:ClueBook",
    "game:FifteenPuzzle": f"{_HERE}.fifteen_puzzle:SlideSearch",
    "game:Game2048": f"{_HERE}.game_2048:LookAhead",
    "game:GuessTheNumber": f"{_HERE}.guess_the_number:BinarySearch",
    "game:Hangman": f"{_HERE}.hangman:TellingLetter",
    "game:Mastermind": f"{_HERE}.mastermind:ConsistentGuess",
    "game:Minesweeper": f"{_HERE}.minesweeper:MineOdds",
    "game:Sokoban": f"{_HERE}.sokoban:PushSearch",
    "game:Sudoku": f"{_HERE}.sudoku:Solver",
    "game:TowerofHanoi": f"{_HERE}.tower_of_hanoi:ShortestWay",
    "game:WikiGame": f"{_HERE}.wiki_game:ShortestLinks",
    "game:WordSearch": f"{_HERE}.word_search:LongestFirst",
    "game:Wordle": f"{_HERE}.wordle:ConsistentWord",
    "webshop:*": f"{_HERE}.web_shop:CarefulCustomer",
    "multi:Nim": f"{_HERE}.multi_agent:PerfectPlayer",
    "multi:ReturnsDesk": f"{_HERE}.multi_agent:AsksForEverything",
    "multi:TicTacToe": f"{_HERE}.multi_agent:PerfectPlayer",
    # For whole namespaces, where only the data hold the answer.
    **{
        f"{name}:*": f"{_HERE}.player:Peek"
        for name in ("rg", "math", "code", "qa", "logic", "eval", "terminal", "mcp")
    },
}
"""Family or namespace of environments -> expert."""
TOOL_EXPERTS = {
    ("math:Remainders", "python"): f"{_HERE}.tool_users:Calculates",
    ("qa:Auction", "search"): f"{_HERE}.tool_users:LooksUp",
}
"""(family, tool) -> expert that uses the tool, for an environment that has it."""
KINDS = ("random", "expert")


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

    @abstractmethod
    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """Begin an episode; the arguments are the result of the environment's ``reset``."""

    @abstractmethod
    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Return the action after the latest observation, at first that of ``reset``."""

    def answer(self, content: object) -> str:
        """Return an action that consists only of an answer, in the answer format."""
        return render(str(content), self.answer_format)

    def unreadable(self, text: str) -> GemError:
        """Build the error for an observation that the player cannot read."""
        return GemError(f"{type(self).__name__} cannot read this observation: {text!r:.200}")


class RandomPlayer(Player):
    """Plays the random actions of the environment."""

    def __init__(self, env: Env, rng: Random):
        super().__init__(rng)
        self.env = env

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """Do nothing: the player has no state."""

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

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """Do nothing: the player has no state."""

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Return the right answer.

        Raises:
            NotImplementedError: the data do not have a right answer.
        """
        answer: str = self.env.unwrapped.peek()  # type: ignore[attr-defined]
        return answer


def random_player(env: Env, rng: Random) -> RandomPlayer:
    """Return a player of random well-formed actions for ``env``."""
    return RandomPlayer(env, rng)


def family(env_id: str) -> str:
    """Return an id without its version and variant.

    >>> family("game:Sudoku-v0-easy")
    'game:Sudoku'
    """
    return env_id.partition("-v")[0]


def get_player(
    kind: str, env_id: str, seed: int | None = None, *, env: Env | None = None, **options: Any
) -> Player:
    """Return a scripted player for an environment.

    Args:
        kind: ``"random"`` or ``"expert"``.
        env_id: id of the environment that will be played.
        seed: seed of the player's own generator.
        env: the environment that will be played. The random player and `Peek` need it; other
            experts read from it only the options that it has too, such as the answer format.
        **options: options of the expert, such as ``noise`` or ``answer_format``.

    Raises:
        UnknownNameError: there is no such kind of player, or no expert for this environment.
        GemError: the player needs the environment, and it was not given.
    """
    if kind not in KINDS:
        raise unknown("kind of player", kind, KINDS, "There are 'random' and 'expert'.")
    if kind == "random":
        return RandomPlayer(_required(env, kind, env_id), Random(seed))
    user = _tool_user(env_id, env)
    if user is not None:
        player: Player = user(Random(seed), env, **{**_options_of(env, user), **options})
        return player
    expert = _expert(env_id)
    if issubclass(expert, Peek):
        return expert(Random(seed), _required(env, kind, env_id))
    return expert(Random(seed), **{**_options_of(env, expert), **options})


def _required(env: Env | None, kind: str, env_id: str) -> Env:
    if env is None:
        raise GemError(
            f"The {kind} player of {env_id} uses the environment that is played: give it, "
            f"get_player({kind!r}, {env_id!r}, env=env)."
        )
    return env


def _options_of(env: Env | None, expert: type[Player]) -> dict[str, Any]:
    """Return the options of an expert that the environment states."""
    if env is None:
        return {}
    inner = env.unwrapped
    return {name: getattr(inner, name) for name in expert.env_options if hasattr(inner, name)}


def _expert(env_id: str) -> type[Player]:
    namespace = env_id.partition(":")[0]
    path = EXPERTS.get(family(env_id)) or EXPERTS.get(f"{namespace}:*")
    if path is None:
        raise unknown("expert for", env_id, EXPERTS, f"There are: {', '.join(EXPERTS)}.")
    return _loaded(path)


def _tool_user(env_id: str, env: Env | None) -> Any:
    """Return the expert that uses one of the environment's tools; ``None``: there is none."""
    for tool in getattr(env, "tools", ()):
        path = TOOL_EXPERTS.get((family(env_id), tool))
        if path is not None:
            return _loaded(path)
    return None


def _loaded(path: str) -> type[Player]:
    module, _, name = path.partition(":")
    cls: type[Player] = getattr(import_module(module), name)
    return cls


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
