"""What clients of a server may set of the built-in environments.

The kinds are those of `gem_core.env.registration.parameters`.

A parameter that is in no table here cannot be set by a client. Not here, for that reason: what
names code (``game``), data (``path``, ``url``, ``dataset``, ``split``, ``columns`` ...) or the
level of a sandbox, and the options of ``rg:*``, whose costs have no known bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core.env.registration.parameters import (
    Choice,
    Declared,
    Flag,
    Kind,
    Maybe,
    Number,
    Rewards,
    Sizes,
    Whole,
)

if TYPE_CHECKING:
    from gem_core.env.spec import EnvSpec

_HERE = "gem_core.envs"
_FORMATS = Choice("boxed", "tag", "plain")
_COMPAT = Maybe(Choice("gem-0.1.0"))
_TURNS = Whole(1, 1000)
_WORDS = Choice("basic", "basic850", "english", "syllables")

_GAME: dict[str, Kind] = {
    "max_turns": Maybe(_TURNS),
    "answer_format": _FORMATS,
    "rewards": Rewards(),
    "format_error_ends": Flag(),
    "compat": _COMPAT,
    "part": Maybe(Choice("train", "eval", "all")),
    "held_out": Maybe(Number(0.001, 0.999)),
}
_TASK: dict[str, Kind] = {**_GAME, "max_turns": _TURNS}
"""Of a game whose turns are always limited."""
_QUESTION: dict[str, Kind] = {
    "answer_format": _FORMATS,
    "rewards": Rewards(),
    "pick": Choice("random", "seed"),
    "compat": _COMPAT,
}
_PARTS: dict[str, Kind] = {
    "part": Maybe(Choice("train", "eval", "all")),
    "held_out": Number(0.001, 0.999),
}
_DATA: dict[str, Kind] = {
    **_QUESTION,
    **_PARTS,
    "dataset": Choice("sample"),
    "images": Maybe(Choice("drop")),
}
_MATH: dict[str, Kind] = {**_DATA, "deadline_s": Number(0.1, 5.0)}
_QA: dict[str, Kind] = {**_DATA, "metric": Choice("em", "f1")}
_AGAINST: dict[str, Kind] = {
    "opponent": Choice("random", "perfect"),
    "seat": Choice("random", "first", "second"),
    "success_at": Number(-10.0, 10.0),
    "answer_format": _FORMATS,
}

_GAMES: dict[str, dict[str, Kind]] = {
    "guess_the_number:GuessTheNumber": {
        "min_number": Maybe(Whole(0, 1_000_000)),
        "max_number": Maybe(Whole(1, 1_000_000)),
    },
    "mastermind:Mastermind": {
        "code_length": Maybe(Whole(1, 12)),
        "num_numbers": Maybe(Whole(1, 99)),
        "duplicate_numbers": Flag(),
    },
    "sudoku:Sudoku": {"scale": Maybe(Choice(4, 9)), "holes": Maybe(Whole(1, 81))},
    "tower_of_hanoi:TowerOfHanoi": {
        "num_disks": Maybe(Whole(1, 9)),
        "start": Choice("A", "random"),
        "moves_left": Maybe(Whole(1, 20)),
    },
    "minesweeper:Minesweeper": {
        "rows": Maybe(Whole(1, 30)),
        "cols": Maybe(Whole(1, 30)),
        "num_mines": Maybe(Whole(1, 891)),
        "hidden_safe": Maybe(Whole(1, 8)),
    },
    "wordle:Wordle": {"word_length": Maybe(Whole(2, 12)), "words": _WORDS},
    "hangman:Hangman": {"word_length": Maybe(Whole(2, 12)), "words": _WORDS},
    "fifteen_puzzle:FifteenPuzzle": {
        "num_rows": Maybe(Whole(2, 9)),
        "shuffle_moves": Whole(1, 10_000),
    },
    "game_2048:Game2048": {
        "target_tile": Maybe(Choice(*(2**power for power in range(3, 18)))),
        "board_size": Whole(2, 8),
        "moves_left": Maybe(Whole(1, 4)),
    },
    "sokoban:Sokoban": {
        "dim_room": Maybe(Sizes(2, 5, 16)),
        "num_boxes": Maybe(Whole(1, 8)),
        "max_pushes": Whole(1, 60),
    },
    "crosswords:Crosswords": {
        "hardcore": Maybe(Flag()),
        "num_words": Maybe(Whole(1, 6)),
        "num_clues": Maybe(Whole(1, 100_000)),
        "hidden_letters": Maybe(Whole(1, 100)),
    },
    "word_search:WordSearch": {
        "num_words": Maybe(Whole(1, 10)),
        "hardcore": Maybe(Flag()),
        "words": _WORDS,
        "word_length": Maybe(Whole(2, 12)),
        "side": Maybe(Whole(2, 20)),
    },
    "wiki_game:WikiGame": {"max_turns": _TURNS},
}
_BY_CLASS: dict[str, Declared] = {
    **{f"{_HERE}.games.{name}": {**_GAME, **own} for name, own in _GAMES.items()},
    f"{_HERE}.reasoning_gym:ReasoningGym": {
        **_QUESTION,
        "pool": Maybe(Whole(1, 2**31)),
        "score": Maybe(Choice("strict", "reasoning_gym")),
        "part": Maybe(Choice("train", "eval", "all")),
        "held_out": Maybe(Number(0.001, 0.999)),
    },
    f"{_HERE}.math:MathEnv": _MATH,
    f"{_HERE}.math:GeometryEnv": _MATH,
    f"{_HERE}.qa:QaEnv": _QA,
    f"{_HERE}.qa:RuleTaker": _QA,
    f"{_HERE}.code:CodeEnv": {
        **_DATA,
        "max_tests": Maybe(Whole(1, 10_000)),
        "partial": Flag(),
        "test_s": Number(0.1, 5.0),
        "total_s": Number(0.1, 60.0),
    },
    f"{_HERE}.terminal.env:TerminalEnv": {
        **_TASK,
        "seconds": Number(0.1, 5.0),
        "output_chars": Whole(1, 20_000),
    },
    f"{_HERE}.database.env:DatabaseEnv": {
        **_TASK,
        "seconds": Number(0.1, 10.0),
        "output_chars": Whole(1, 20_000),
    },
    f"{_HERE}.webshop:WebShop": {
        **_TASK,
        **_PARTS,
        "dataset": Choice("sample"),
        "split": Choice("train", "test"),
        "rendering": Choice("text", "text_rich", "html"),
        "error_tolerance": Whole(1, 1000),
    },
    f"{_HERE}.multi_agent.dialogue:ReturnsDesk": {**_TASK, "user": Choice("scripted")},
}
_BY_GAME: dict[str, Declared] = {
    f"{_HERE}.multi_agent.games:TicTacToe": _AGAINST,
    f"{_HERE}.multi_agent.games:Nim": {
        **_AGAINST,
        "heaps": Whole(2, 8),
        "largest": Whole(2, 30),
    },
}
"""The games of ``multi_agent.base:AgainstOpponent``, which takes their parameters too."""


def client_parameters(spec: EnvSpec) -> Declared:
    """Return what a client may set of a built-in environment."""
    if spec.entry_point == f"{_HERE}.multi_agent.base:AgainstOpponent":
        return _BY_GAME.get(spec.kwargs["game"], {})
    return _BY_CLASS.get(spec.entry_point, {})
