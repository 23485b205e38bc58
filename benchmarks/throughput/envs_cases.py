"""The games that are compared: the same sizes and the same random actions on every side.

This file is imported by three Python interpreters, of which two do not have gem-core.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

DATA = Path(__file__).resolve().parents[2] / "gem_core" / "data"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def words(name: str) -> list[str]:
    return (DATA / f"words_{name}.txt").read_text().split()


def numbers(rng: Random, *ends: int, low: int = 0) -> str:
    return " ".join(str(rng.randint(low, end)) for end in ends)


def direction(rng: Random) -> str:
    return rng.choice(("up", "down", "left", "right"))


def code(rng: Random) -> str:
    return " ".join(map(str, rng.sample(range(1, 9), 4)))


def word_of(length: int) -> list[str]:
    return [w.upper() for w in words("basic") if len(w) == length]


def line(rng: Random) -> str:
    row, col, end = (rng.randrange(15) for _ in range(3))
    return f"{row} {col} {row} {end}" if rng.random() < 0.5 else f"{row} {col} {end} {col}"


POOLS = {length: word_of(length) for length in (5, 7)}

CASES = {
    "GuessTheNumber": (
        "game:GuessTheNumber-v0-hard",
        ("GuessTheNumber", "GuessTheNumberEnv", {"max_number": 50, "max_turns": 7}),
        lambda rng: numbers(rng, 50, low=1),
    ),
    "Mastermind": (
        "game:Mastermind-v0-hard",
        ("Mastermind", "MastermindEnv", {"code_length": 4, "num_numbers": 8, "max_turns": 30}),
        code,
    ),
    "Minesweeper": (
        "game:Minesweeper-v0-hard",
        ("Minesweeper", "MinesweeperEnv", {"num_mines": 12, "max_turns": 64}),
        lambda rng: "reveal " + numbers(rng, 7, 7),
    ),
    "Wordle": (
        "game:Wordle-v0-hard",
        ("Wordle", "WordleEnv", {"word_length": 5, "num_guesses": 25}),
        lambda rng: rng.choice(POOLS[5]),
    ),
    "FifteenPuzzle": (
        "game:FifteenPuzzle-v0-hard",
        ("FifteenPuzzle", "FifteenPuzzleEnv", {"max_turns": 50}),
        direction,
    ),
    "Hangman": (
        "game:Hangman-v0-hard",
        ("Hangman", "HangmanEnv", {}),
        lambda rng: rng.choice((rng.choice(LETTERS), rng.choice(LETTERS), rng.choice(POOLS[7]))),
    ),
    "Sudoku": (
        "game:Sudoku-v0-hard",
        ("Sudoku", "SudokuEnv", {"clues": 31, "max_turns": 50}),
        lambda rng: numbers(rng, 9, 9, 9, low=1),
    ),
    "TowerofHanoi": (
        "game:TowerofHanoi-v0-hard",
        ("TowerOfHanoi", "TowerOfHanoiEnv", {"num_disks": 5, "max_turns": 35}),
        lambda rng: " ".join(rng.sample("ABC", 2)),
    ),
    "Game2048": (
        "game:Game2048-v0-hard",
        ("Game2048", "Game2048Env", {"target_tile": 512}),
        direction,
    ),
    "Sokoban": (
        "game:Sokoban-v0-easy",
        ("Sokoban", "SokobanEnv", {"dim_room": (6, 6), "num_boxes": 2, "max_turns": 20}),
        direction,
    ),
    "Crosswords": (
        "game:Crosswords-v0-hard",
        ("Crosswords", "CrosswordsEnv", {"hardcore": True, "max_turns": 40, "num_words": 3}),
        lambda rng: f"{numbers(rng, 9, 9)} {rng.choice(LETTERS)}",
    ),
    "WordSearch": (
        "game:WordSearch-v0-hard",
        ("WordSearch", "WordSearchEnv", {"hardcore": True, "max_turns": 20}),
        line,
    ),
}
"""Family -> (gem id, TextArena module, class and arguments, how many actions are written).
TextArena's WordSearch and FifteenPuzzle have one size only."""


def actions(case: str, side: str, count: int = 1000) -> list[str]:
    """Return random actions in the format of one side; the moves are the same for all sides."""
    rng = Random(0)
    contents = [CASES[case][2](rng) for _ in range(count)]
    if side == "textarena":
        return [f"[{content.removeprefix('reveal ')}]" for content in contents]
    return [f"\\boxed{{{content}}}" for content in contents]
