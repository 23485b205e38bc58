"""The crossword clues: words with one clue each. They are read once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_FILE = "crossword_clues.tsv"


@cache
def clues(hard: bool) -> tuple[tuple[str, str], ...]:
    """Return ``(word in upper case, clue)`` of all easy or all hard words.

    >>> clues(False)[0]
    ('ANCHOR', 'Heavy iron that keeps a ship in its place')
    """
    level = "hard" if hard else "easy"
    lines = (Path(__file__).parent / _FILE).read_text(encoding="ascii").splitlines()
    rows = (line.split("\t") for line in lines)
    return tuple((word.upper(), clue) for kind, word, clue in rows if kind == level)
