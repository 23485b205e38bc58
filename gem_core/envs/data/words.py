"""The word lists: immutable tuples that are read once and shared by all environments."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product
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
SYLLABLES = "syllables"
"""Name of the list that is made by a rule: a consonant, a vowel, and so on, 2 to 4 letters of a
small alphabet. It has 45 words of 2 letters, 405 of 3 and 2,025 of 4: enough different tasks for a
small model, in each of which every combination of letters is a word."""
_CONSONANTS = "bdgklmnst"
_VOWELS = "aeiou"


@cache
def words(name: str) -> tuple[str, ...]:
    """Return a word list: lower-case words of the letters a to z, in alphabetical order.

    Raises:
        UnknownNameError: there is no such list.

    >>> {name: len(words(name)) for name in LISTS}
    {'basic': 3710, 'basic850': 850, 'english': 38981}
    """
    if name == SYLLABLES:
        return _syllables()
    if name not in LISTS:
        known = (*LISTS, SYLLABLES)
        raise unknown("word list", name, known, f"There are {', '.join(map(repr, known))}.")
    text = (Path(__file__).parent / LISTS[name]).read_text(encoding="ascii")
    return tuple(text.split())


def _syllables() -> tuple[str, ...]:
    letters = [_CONSONANTS, _VOWELS, _CONSONANTS, _VOWELS]
    every = (product(*letters[:length]) for length in (2, 3, 4))
    return tuple(sorted("".join(word) for group in every for word in group))


def language(source: str | Sequence[str]) -> str:
    """Return the adjective that the rules of a game give to the words of a list.

    >>> language("basic"), language("syllables")
    ('English', 'made-up')
    """
    return "made-up" if source == SYLLABLES else "English"


def upper_words(source: str | Sequence[str], length: int | None = None) -> tuple[str, ...]:
    """Return the words of a list in upper case, either all or those of one length.

    Args:
        source: the name of a list, or the words themselves.
        length: the length of the words; ``None`` = all.

    Raises:
        ValueError: the list has no word of this length, or holds what is not a word.
        UnknownNameError: there is no such list.

    >>> upper_words("basic", 3)[:3]
    ('ACT', 'ADD', 'AGE')
    >>> upper_words(["cat", "horse"], 5)
    ('HORSE',)
    """
    return _upper_words(source if isinstance(source, str) else tuple(source), length)


@cache
def _upper_words(source: str | tuple[str, ...], length: int | None) -> tuple[str, ...]:
    if isinstance(source, str):
        listed = words(source)
    else:
        listed = source
        for word in listed:
            if not isinstance(word, str) or not word.isalpha() or not word.isascii():
                raise ValueError(f"words: {word!r} is not a word of the letters A to Z.")
    selected = tuple(w.upper() for w in listed if length is None or len(w) == length)
    if not selected:
        raise ValueError(f"The word list {source!r} has no words of length {length}.")
    return selected
