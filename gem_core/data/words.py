"""The word lists: one immutable tuple each, read once, shared by all environments."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from gem_core.errors import unknown

#: Name -> file. ``basic``: the commonest words; ``english``: a small spelling dictionary.
LISTS = {"basic": "words_basic.txt", "english": "words_english.txt"}


@cache
def words(name: str) -> tuple[str, ...]:
    """Return a word list: lower-case words from a to z in alphabetical order.

    Raises:
        UnknownNameError: There is no such list.

    >>> len(words("basic")) > 3000, words("basic")[0]
    (True, 'abilities')
    """
    if name not in LISTS:
        raise unknown("word list", name, LISTS, f"There are {', '.join(map(repr, LISTS))}.")
    text = (Path(__file__).parent / LISTS[name]).read_text(encoding="ascii")
    return tuple(text.split())


@cache
def upper_words(name: str, length: int | None = None) -> tuple[str, ...]:
    """Return the words of a list in upper case, those of one length or all.

    Raises:
        ValueError: No word of the list has this length.
        UnknownNameError: There is no such list.

    >>> upper_words("basic", 3)[:3]
    ('ACT', 'ADD', 'AGE')
    """
    found = tuple(w.upper() for w in words(name) if length is None or len(w) == length)
    if not found:
        raise ValueError(f"The word list {name!r} has no words of length {length}.")
    return found
