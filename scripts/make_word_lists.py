"""Write the word lists in ``gem_core/envs/data`` from SCOWL.

    apt-get download scowl && dpkg -x scowl_*.deb DIR
    python scripts/make_word_lists.py DIR/usr/share/dict/scowl

The lists that are committed come from Debian's ``scowl`` 2020.12.07-2.
"""

from __future__ import annotations

import argparse
import re
from hashlib import sha256
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "gem_core" / "data"
SPELLINGS = ("english", "american")
LISTS = {
    "words_basic.txt": ((10,), 3, 10),
    "words_english.txt": ((10, 20, 35), 3, 15),
}
"""File -> (SCOWL levels, shortest word, longest word)."""
SMALL = "words_basic850.txt"
"""A part of ``words_basic.txt``."""
SIZE = 850
"""Number of words in `SMALL`, which is that of GEM's list."""
ENDINGS = ("s", "es", "d", "ed", "ing", "ly", "r", "er", "st", "est")
LEFT_OUT = re.compile(
    "(bitch|porn|slut|whore|sex|nazi|bastard|fuck|shit).*|rap(e|ed|es|ing|ist|ists)"
)
"""Offensive words."""


def words(scowl: Path, levels: tuple[int, ...], shortest: int, longest: int) -> list[str]:
    """Return the words of some levels that are lower-case letters only, in order."""
    pattern = re.compile(f"[a-z]{{{shortest},{longest}}}")
    selected: set[str] = set()
    for level in levels:
        for spelling in SPELLINGS:
            text = (scowl / f"{spelling}-words.{level}").read_text(encoding="latin-1")
            selected.update(word for word in text.split() if pattern.fullmatch(word))
    return sorted(word for word in selected if not LEFT_OUT.fullmatch(word))


def small(words: list[str]) -> list[str]:
    """Return `SIZE` words without those that are another word and an ending.

    The others are chosen by their SHA-256: always the same ones, spread evenly over the alphabet
    and over the lengths.
    """
    known = set(words)
    base = [word for word in words if not any(stem in known for stem in stems(word))]
    by_digest = sorted(base, key=lambda word: sha256(word.encode()).digest())
    return sorted(by_digest[:SIZE])


def stems(word: str) -> list[str]:
    """Return the words of which a word may be an inflected form."""
    stems = [word.removesuffix(ending) for ending in ENDINGS if word.endswith(ending)]
    stems += [f"{stem}e" for stem in stems]
    stems += [f"{stem[:-1]}y" for stem in stems if stem.endswith("i")]
    return stems + [stem[:-1] for stem in stems if stem[-1:] == stem[-2:-1]]


def main() -> None:
    """Write all lists."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("scowl", type=Path, help="the folder with english-words.10 and so on")
    args = parser.parse_args()
    for name, (levels, shortest, longest) in LISTS.items():
        selected = words(args.scowl, levels, shortest, longest)
        (DATA / name).write_text("\n".join(selected) + "\n")
        print(f"{name}: {len(selected)} words")
    selected = small((DATA / "words_basic.txt").read_text().split())
    (DATA / SMALL).write_text("\n".join(selected) + "\n")
    print(f"{SMALL}: {len(selected)} words")


if __name__ == "__main__":
    main()
