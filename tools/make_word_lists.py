"""Write the word lists in ``gem_core/data`` from SCOWL.

    apt-get download scowl && dpkg -x scowl_*.deb DIR
    python tools/make_word_lists.py DIR/usr/share/dict/scowl

The lists that are committed come from Debian's ``scowl`` 2020.12.07-2.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "gem_core" / "data"
SPELLINGS = ("english", "american")
#: File -> (SCOWL levels, shortest word, longest word).
LISTS = {
    "words_basic.txt": ((10,), 3, 10),
    "words_english.txt": ((10, 20, 35), 3, 15),
}
#: Not for a classroom.
LEFT_OUT = re.compile(
    "(bitch|porn|slut|whore|sex|nazi|bastard|fuck|shit).*|rap(e|ed|es|ing|ist|ists)"
)


def words(scowl: Path, levels: tuple[int, ...], shortest: int, longest: int) -> list[str]:
    """Return the words of some levels that are lower-case letters only, in order."""
    wanted = re.compile(f"[a-z]{{{shortest},{longest}}}")
    found: set[str] = set()
    for level in levels:
        for spelling in SPELLINGS:
            text = (scowl / f"{spelling}-words.{level}").read_text(encoding="latin-1")
            found.update(word for word in text.split() if wanted.fullmatch(word))
    return sorted(word for word in found if not LEFT_OUT.fullmatch(word))


def main() -> None:
    """Write all lists."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("scowl", type=Path, help="the folder with english-words.10 and so on")
    args = parser.parse_args()
    for name, (levels, shortest, longest) in LISTS.items():
        found = words(args.scowl, levels, shortest, longest)
        (DATA / name).write_text("\n".join(found) + "\n")
        print(f"{name}: {len(found)} words")


if __name__ == "__main__":
    main()
