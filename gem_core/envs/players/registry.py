"""The registry of players: which experts and which weak players an environment has.

A weak player follows the rules with a strategy that leaves room. The tiny model's warm start can
imitate it instead of the expert (``model.tiny.teacher``), so that reinforcement learning has
something to find that was not cloned.

The class of an environment may bring players of its own, in the attribute ``players``: a dict of
name -> `Player` class. Built-in ones and those of `register_player` are named in tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from random import Random
from typing import Any

from gem_core.env.interface import Env
from gem_core.env.registration import spec
from gem_core.env.registration.references import TrustError
from gem_core.envs.players.player import Peek, Player, RandomPlayer
from gem_core.envs.players.tool_users import ToolUser
from gem_core.errors import GemError, RegistrationError, UnknownNameError, unknown

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
    ("math:DigitSums", "python"): f"{_HERE}.tool_users:AddsDigits",
    ("qa:Auction", "search"): f"{_HERE}.tool_users:LooksUp",
    ("qa:Ledger", "search"): f"{_HERE}.tool_users:FollowsLedger",
}
"""(family, tool) -> expert that uses the tool, for an environment that has it."""
_SHOWN = {"number-shown": "weak_tools:NumberShown"}
_WEAK: dict[str, dict[str, str]] = {
    "game:Crosswords": {"alphabet-in-cell": "word_habits:AlphabetInCell"},
    "game:FifteenPuzzle": {"no-way-back": "weak:LegalSlide", "first-slide": "habits:FirstSlide"},
    "game:Game2048": {"near-target": "habits:NearTarget", "first-shift": "habits:FirstShift"},
    "game:GuessTheNumber": {"within-hints": "weak:WithinHints", "lowest-left": "habits:LowestLeft"},
    "game:Hangman": {
        "common-letters": "weak:CommonLetter",
        "first-letter": "word_habits:FirstLetter",
    },
    "game:Mastermind": {"new-code": "weak:NewCode"},
    "game:Minesweeper": {"hidden-cell": "weak:HiddenCell", "first-hidden": "habits:FirstHidden"},
    "game:Sokoban": {"no-way-back": "weak:Wanderer", "first-walk": "habits:FirstWalk"},
    "game:Sudoku": {"empty-cell": "weak:EmptyCell", "one-in-first-hole": "habits:OneInFirstHole"},
    "game:TowerofHanoi": {"no-way-back": "weak:LegalDisk", "first-disk": "habits:FirstDisk"},
    "game:WordSearch": {"next-line": "word_habits:NextLine"},
    "game:Wordle": {
        "keeps-green": "weak:KeepsGreen",
        "next-letters": "word_habits:NextLetters",
        "next-word": "word_habits:NextWord",
    },
    "rg:arc_1d": {"copies-input": "weak_answers:CopiesInput"},
    "rg:letter_counting": {"first-word": "weak_answers:FirstWord"},
    **{
        f"rg:{name}": {
            "first-number": "weak_answers:FirstNumber",
            "last-number": "weak_answers:LastNumber",
        }
        for name in ("basic_arithmetic", "chain_sum", "leg_counting", "simple_equations")
    },
    **{
        env: {"any-operation": "weak_code:AnyOperation", "prints-input": "weak_code:PrintsInput"}
        for env in ("code:Formulas", "code:Lists")
    },
    **{
        env: {"any-formula": "weak_tools:AnyFormula", **_SHOWN}
        for env in ("math:Remainders", "math:DigitSums")
    },
    "qa:Auction": {**_SHOWN},
    "qa:Ledger": {"any-step": "weak_tools:AnyStep", **_SHOWN},
    **{
        f"{name}:*": {"another-answer": "weak:AnotherAnswer"}
        for name in ("rg", "math", "code", "qa")
    },
}
WEAK = {
    env: {name: f"{_HERE}.{path}" for name, path in players.items()}
    for env, players in _WEAK.items()
}
"""Family or namespace of environments -> name of a weak player -> the player."""
KINDS = ("random", "expert")
"""Players of which every environment has the first and most have the second."""


def register_player(name: str, env: str, entry_point: str) -> None:
    """Add a player of an environment: for plugins, beside `gem_core.register`.

    Args:
        name: its name, for `get_player` and ``model.tiny.teacher``; ``"expert"`` for an expert.
        env: family of the environment (its id without version and variant), or ``namespace:*``.
        entry_point: ``module:Class`` of a `Player`; the class is imported when it first plays.

    Raises:
        GemError: the name is taken.
    """
    table = EXPERTS if name == "expert" else WEAK.setdefault(env, {})
    key = env if name == "expert" else name
    if name == "random" or table.get(key, entry_point) != entry_point:
        raise GemError(f"{env} has a player {name!r} already: choose another name.")
    table[key] = entry_point


def player_names(env_id: str, env: Env | None = None) -> tuple[str, ...]:
    """Return the names of the players of an environment, the weak ones last.

    Args:
        env_id: its id.
        env: the environment; without it, its class is looked up by the id.

    >>> player_names("game:GuessTheNumber-v0-easy")
    ('random', 'expert', 'within-hints', 'lowest-left')
    """
    own = [name for name in _own(env_id, env) if name not in KINDS]
    return (*KINDS, *_weak(env_id), *own)


def require_player(name: str, env_id: str, env: Env | None = None) -> None:
    """Check that an environment may have a player; whether there is an expert is seen later.

    Raises:
        UnknownNameError: it has none of this name.
        RegistrationError: the attribute ``players`` of its class is wrong.
    """
    names = player_names(env_id, env)
    if name not in names:
        raise unknown("player", name, names, f"{env_id} has: {', '.join(names)}.")


def _own(env_id: str, env: Env | None = None) -> Mapping[str, type[Player]]:
    """Return the players that the class of an environment brings, by their names.

    Raises:
        RegistrationError: its attribute ``players`` is no dict of name -> `Player` class.
    """
    kind: Any = None if env is None else type(env.unwrapped)
    if not hasattr(kind, "players"):  # not given, or in another process
        kind = _class_of(env_id)
    players = getattr(kind, "players", {})
    taken = set(_weak(env_id)) | {"random"}
    for name, player in players.items() if isinstance(players, Mapping) else [("", None)]:
        if name in taken or not (isinstance(player, type) and issubclass(player, Player)):
            raise RegistrationError(
                f"{env_id}: players of its class must be a dict of names, other than "
                f"{', '.join(sorted(taken))}, and classes derived from Player; {name!r:.40} is not."
            )
    return players


def _class_of(env_id: str) -> Any:
    """Return the class of another package's environment; ``None``: it is one of gem-core."""
    try:
        known = spec(env_id)
    except (UnknownNameError, TrustError):  # the caller made it otherwise
        return None
    return None if known.entry_point.startswith("gem_core.") else known.load()


def _weak(env_id: str) -> dict[str, str]:
    namespace = env_id.partition(":")[0]
    return {**WEAK.get(f"{namespace}:*", {}), **WEAK.get(family(env_id), {})}


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
        kind: ``"random"``, ``"expert"``, or a weak player of the environment, see `player_names`.
        env_id: id of the environment that will be played.
        seed: seed of the player's own generator.
        env: the environment that will be played. The random player and `Peek` need it; other
            players read from it only the options that it has too, such as the answer format.
        **options: options of the player, such as ``noise`` or ``answer_format``.

    Raises:
        UnknownNameError: the environment has no such player.
        GemError: the player needs the environment, and it was not given, or lacks its tool.
    """
    require_player(kind, env_id, env)
    if kind == "random":
        return RandomPlayer(_required(env, kind, env_id), Random(seed))
    own = _own(env_id, env)
    if kind in own:
        chosen = own[kind]
    elif kind == "expert":
        chosen = _tool_user(env_id, env) or _expert(env_id)
    else:
        chosen = _loaded(_weak(env_id)[kind])
    if issubclass(chosen, Peek):
        return chosen(Random(seed), _required(env, kind, env_id))
    options = {**_options_of(env, chosen), **options}
    if issubclass(chosen, ToolUser):
        return chosen(Random(seed), _required(env, kind, env_id), **options)
    return chosen(Random(seed), **options)


def _required(env: Env | None, kind: str, env_id: str) -> Env:
    if env is None:
        raise GemError(
            f"The {kind} player of {env_id} uses the environment that is played: give it, "
            f"get_player({kind!r}, {env_id!r}, env=env)."
        )
    return env


def _options_of(env: Env | None, player: type[Player]) -> dict[str, Any]:
    """Return the options of a player that the environment states."""
    if env is None:
        return {}
    inner = env.unwrapped
    return {name: getattr(inner, name) for name in player.env_options if hasattr(inner, name)}


def _expert(env_id: str) -> type[Player]:
    namespace = env_id.partition(":")[0]
    path = EXPERTS.get(family(env_id)) or EXPERTS.get(f"{namespace}:*")
    if path is None:
        raise unknown("expert for", env_id, EXPERTS, f"There are: {', '.join(EXPERTS)}.")
    return _loaded(path)


def _tool_user(env_id: str, env: Env | None) -> type[Player] | None:
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
