"""The hidden state of a gem-core game, as the attributes of GEM's environment of that game."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

State = dict[str, Any]


def gem_state(game: str, env: Any) -> State:
    """Return the attributes that give GEM's environment the state of ``env`` after ``reset``."""
    return {"max_turns": env._budget, **_STATES[game](env)}


def _guess_the_number(env: Any) -> State:
    return {
        "min_number": env._low,
        "max_number": env._high,
        "game_number": env._target,
        "set:previous_guesses": [],
    }


def _mastermind(env: Any) -> State:
    return {
        "code_length": len(env._code),
        "num_numbers": env._numbers,
        "game_code": [int(number) for number in env._code],
        "set:previous_guesses": [],
        "milestone": 0,
    }


def _minesweeper(env: Any) -> State:
    rows = env._rows
    cols = env._cols
    rng = deepcopy(env.rng)  # the order of the mines is drawn at the first reveal
    return {
        "rows": rows,
        "cols": cols,
        "num_mines": env._mines,
        "grid": [[0] * cols for _ in range(rows)],
        "revealed": [[False] * cols for _ in range(rows)],
        "flags": [[False] * cols for _ in range(rows)],
        "first_reveal": True,
        "order": rng.sample(range(rows * cols), env._mines + 9),
    }


def _wordle(env: Any) -> State:
    return {
        "word_length": len(env._word),
        "secret_word": env._word,
        "set:previous_guesses": [],
        "milestones": [0] * len(env._word),
    }


def _hangman(env: Any) -> State:
    return {
        "word_length": len(env._word),
        "secret_word": env._word,
        "board": ["_"] * len(env._word),
        "set:guessed_letters": [],
    }


def _sudoku(env: Any) -> State:
    side = env._side
    cells = env._cells
    numbers = [int(digit) for digit in env._solution]
    return {
        "scale": side,
        "full_grid": [numbers[r : r + side] for r in range(0, side * side, side)],
        "board": [cells[r : r + side] for r in range(0, side * side, side)],
        "init_num_empty": cells.count(0),
    }


def _tower_of_hanoi(env: Any) -> State:
    board = {name: [int(disk) for disk in peg] for name, peg in zip("ABC", env._pegs, strict=True)}
    return {"num_disks": env._disks, "board": board}


def _fifteen_puzzle(env: Any) -> State:
    rows = [line.split() for line in env._text.split("\n")]
    return {
        "num_rows": env._side,
        "greatest_num": env._side**2 - 1,
        "board": [[None if tile == "__" else int(tile) for tile in row] for row in rows],
    }


def _game_2048(env: Any) -> State:
    return {
        "target_tile": env._target,
        "board_size": env.board_size,
        "board": [list(row) for row in env._rows],
        "max_tile_achieved": env._best,
        "init_max_tile_achieved": env._first,
    }


def _sokoban(env: Any) -> State:
    rows = [line.split(" ") for line in env._text.split("\n")]
    state = {"#": 0, "_": 1, "O": 2, "√": 3, "X": 4, "P": 5, "S": 5}
    fixed = {"#": 0, "_": 1, "O": 2, "√": 2, "X": 1, "P": 1, "S": 2}
    player = [(r, c) for r, row in enumerate(rows) for c, cell in enumerate(row) if cell in "PS"]
    return {
        "dim_room": [len(rows), len(rows[0])],
        "num_boxes": env._boxes,
        "array:room_state": [[state[cell] for cell in row] for row in rows],
        "array:room_fixed": [[fixed[cell] for cell in row] for row in rows],
        "array:player_position": list(player[0]),
    }


def _crosswords(env: Any) -> State:
    cols = env._cols
    letters = env._solution
    solution = [list(letters[r : r + cols]) for r in range(0, len(letters), cols)]
    return {
        "solution": solution,
        "board": [["." if cell == "." else "_" for cell in row] for row in solution],
        "clues": {},
        "placed_words": {},
        "total_letter_cells": len(letters) - letters.count("."),
    }


def _word_search(env: Any) -> State:
    side = env._side
    grid = env._grid
    placed = {}
    for word, start, end in zip(env._words, env._ends[::2], env._ends[1::2], strict=True):
        way = "across" if start // side == end // side else "down"
        placed[word] = [start // side, start % side, way]
    return {
        "game_board": [list(grid[r : r + side]) for r in range(0, side * side, side)],
        "placed_words": placed,
        "set:highlighted_positions": [],
        "set:correct_words": [],
        "attempts": [],
    }


_STATES: dict[str, Callable[[Any], State]] = {
    "GuessTheNumber": _guess_the_number,
    "Mastermind": _mastermind,
    "Minesweeper": _minesweeper,
    "Wordle": _wordle,
    "Hangman": _hangman,
    "Sudoku": _sudoku,
    "TowerofHanoi": _tower_of_hanoi,
    "FifteenPuzzle": _fifteen_puzzle,
    "Game2048": _game_2048,
    "Sokoban": _sokoban,
    "Crosswords": _crosswords,
    "WordSearch": _word_search,
}
