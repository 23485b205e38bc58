"""The word lists: immutable tuples that are read once and shared by all environments."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from gem_core.errors import unknown

LISTS = {
    "basic": "words_basic.txt",
    "basic850": "words_basic850.txt",
    "english": "words_english.txt",
}
"""Name -> file.

``basic``: the 3,710 commonest words (157 of 3 letters, 600 of 5, 675 of 7), inflected forms too.
``basic850``: 850 of them (65, 152, 119), base forms only: as many as GEM's list has, not the same.
``english``: a small spelling dictionary of 38,981 words (478, 3,454, 6,716).
"""


@cache
def words(name: str) -> tuple[str, ...]:
    """Return a word list: lower-case words of the letters a to z, in alphabetical order.

    Raises:
        UnknownNameError: there is no such list.

    >>> {name: len(words(name)) for name in LISTS}
    {'basic': 3710, 'basic850': 850, 'english': 38981}
    """
    if name not in LISTS:
        raise unknown("word list", name, LISTS, f"There are {', '.join(map(repr, LISTS))}.")
    text = (Path(__file__).parent / LISTS[name]).read_text(encoding="ascii")
    return tuple(text.split())


@cache
def upper_words(name: str, length: int | None = None) -> tuple[str, ...]:
    """Return the words of a list in upper case, either all or those of one length.

    Raises:
        ValueError: the list has no word of this length.
        UnknownNameError: there is no such list.

    >>> upper_words("basic", 3)[:3]
    ('ACT', 'ADD', 'AGE')
    """
    selected = tuple(w.upper() for w in words(name) if length is None or len(w) == length)
    if not selected:
        raise ValueError(f"The word list {name!r} has no words of length {length}.")
    return selected
