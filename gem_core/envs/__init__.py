"""The table of the built-in games. It imports none of them: entry points are strings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core.env.spec import EnvSpec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_GAMES = "gem_core.envs.games"

_FAMILIES: dict[tuple[str, str], dict[str, dict[str, Any]]] = {
    ("game:GuessTheNumber-v0", f"{_GAMES}.guess_the_number:GuessTheNumber"): {
        "easy": {"min_number": 1, "max_number": 10, "max_turns": 4},
        "hard": {"min_number": 1, "max_number": 50, "max_turns": 7},
        "random": {"min_number": None, "max_number": None, "max_turns": None},
    },
    ("game:Mastermind-v0", f"{_GAMES}.mastermind:Mastermind"): {
        "easy": {"code_length": 2, "num_numbers": 6, "max_turns": 10},
        "hard": {"code_length": 4, "num_numbers": 8, "max_turns": 30},
        "random": {"code_length": None, "num_numbers": None, "max_turns": None},
    },
    ("game:Sudoku-v0", f"{_GAMES}.sudoku:Sudoku"): {
        "easy": {"scale": 4, "holes": 10, "max_turns": 15},
        "hard": {"scale": 9, "holes": 50, "max_turns": 50},
        "random": {"scale": None, "holes": None, "max_turns": None},
    },
    ("game:TowerofHanoi-v0", f"{_GAMES}.tower_of_hanoi:TowerOfHanoi"): {
        "easy": {"num_disks": 3, "max_turns": 10},
        "hard": {"num_disks": 5, "max_turns": 35},
        "random": {"num_disks": None, "max_turns": None},
    },
    ("game:Minesweeper-v0", f"{_GAMES}.minesweeper:Minesweeper"): {
        "easy": {"rows": 5, "cols": 5, "num_mines": 5, "max_turns": 25},
        "hard": {"rows": 8, "cols": 8, "num_mines": 12, "max_turns": 64},
        "random": {"rows": None, "cols": None, "num_mines": None, "max_turns": None},
    },
    ("game:Wordle-v0", f"{_GAMES}.wordle:Wordle"): {
        "easy": {"word_length": 3, "max_turns": 15},
        "hard": {"word_length": 5, "max_turns": 25},
        "random": {"word_length": None, "max_turns": None},
    },
    ("game:FifteenPuzzle-v0", f"{_GAMES}.fifteen_puzzle:FifteenPuzzle"): {
        "easy": {"num_rows": 2, "max_turns": 10},
        "hard": {"num_rows": 4, "max_turns": 50},
        "random": {"num_rows": None, "max_turns": None},
    },
    ("game:Hangman-v0", f"{_GAMES}.hangman:Hangman"): {
        "easy": {"word_length": 3, "max_turns": 10},
        "hard": {"word_length": 7, "max_turns": 20},
        "random": {"word_length": None, "max_turns": None},
    },
    ("game:Game2048-v0", f"{_GAMES}.game_2048:Game2048"): {
        "easy": {"target_tile": 64, "max_turns": 50},
        "hard": {"target_tile": 512, "max_turns": 50},
        "extreme-hard": {"target_tile": 2048, "max_turns": 100},
        "random": {"target_tile": None, "max_turns": None},
    },
    ("game:Sokoban-v0", f"{_GAMES}.sokoban:Sokoban"): {
        "easy": {"dim_room": [6, 6], "num_boxes": 2, "max_turns": 20},
        "hard": {"dim_room": [8, 8], "num_boxes": 4, "max_turns": 50},
        "random": {"dim_room": None, "num_boxes": None, "max_turns": None},
    },
    ("game:Crosswords-v0", f"{_GAMES}.crosswords:Crosswords"): {
        "easy": {"hardcore": False, "num_words": 3, "max_turns": 30},
        "hard": {"hardcore": True, "num_words": 3, "max_turns": 40},
        "random": {"hardcore": None, "num_words": None, "max_turns": None},
    },
    ("game:WordSearch-v0", f"{_GAMES}.word_search:WordSearch"): {
        "easy": {"hardcore": False, "num_words": 5, "max_turns": 20},
        "hard": {"hardcore": True, "num_words": 5, "max_turns": 20},
        "random": {"hardcore": None, "num_words": None, "max_turns": None},
    },
    ("game:WikiGame-v0", f"{_GAMES}.wiki_game:WikiGame"): {
        "easy": {"max_turns": 30},
        "hard": {"max_turns": 15},
    },
}
"""{(name, entry point): {variant: keyword arguments}}; ``None`` = drawn at each reset."""


def specs() -> Iterator[EnvSpec]:
    """Yield the spec of every built-in environment."""
    for (name, entry_point), variants in _FAMILIES.items():
        for variant, kwargs in variants.items():
            yield EnvSpec(f"{name}-{variant}", entry_point, kwargs)
    from gem_core.envs._data_specs import data_specs

    yield from data_specs()
