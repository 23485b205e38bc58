"""Two disjoint parts of a table of items: one to train on, one for evaluation.

The text of an item decides its part, so that items with the same text are in the same part, in any
order of the rows and on any machine. An item is judged when it is read: a large table is never read
as a whole.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from gem_core.errors import DataError, unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from random import Random

PARTS = ("train", "eval")
ALL = "all"
"""In the place of a part: the whole table."""
HELD_OUT = 0.1
"""Share of the items in the part for evaluation."""
SMALL = 1000
"""Up to this many rows, the share is exact and each part has an item; a larger table, which is not
read as a whole, is divided by chance."""
_REMEDY = (
    "evaluate on other data, with [[eval.env]], or on the items of the training, with "
    "kwargs.part = 'all'"
)

_divisions: dict[Hashable, Division] = {}


class Items(NamedTuple):
    """Which items an environment plays, and what divides them.

    Attributes:
        dataset: name of the data set, or path of its file.
        subset: configuration of the data set.
        split: split of the data set; ``None``: its only one.
        division: two environments with the same value divide the same items in the same way.
    """

    dataset: str
    subset: str | None
    split: str | None
    division: tuple[object, ...]

    def same_rows(self, other: Items) -> bool:
        """Whether both are items of the same table."""
        splits = {self.split, other.split} - {None}
        return self[:2] == other[:2] and len(splits) <= 1


def normalise(text: str) -> str:
    """Return a text without differences that do not make another task: white space, case."""
    return " ".join(text.split()).casefold()


def check_part(part: str | None, held_out: float | None) -> str | None:
    """Check the parameters of an environment; return the part, ``None`` for the whole.

    Raises:
        UnknownNameError: there is no such part.
        ValueError: the share is impossible.
    """
    if part is None and held_out is None:
        return None
    if part is not None and part not in (*PARTS, ALL):
        raise unknown("part", part, (*PARTS, ALL), "There are 'train', 'eval' and 'all'.")
    if held_out is None or not 0 < held_out < 1:
        raise ValueError(f"held_out must be between 0 and 1, not {held_out}.")
    return None if part == ALL else part


def division(
    revision: Hashable, share: float, count: int, text_of: Callable[[int], str]
) -> Division:
    """Return the division of a table; it is made once per process.

    Args:
        revision: identifies the rows and the texts.
        share: share of the items in the part for evaluation.
        count: number of rows.
        text_of: function that returns the text of row ``i``.

    Raises:
        DataError: a part would be empty.
    """
    key = (revision, share, count)
    if key not in _divisions:
        _divisions[key] = Division(share, count, text_of)
    return _divisions[key]


class Division:
    """A table of items in two parts; see `division` for the arguments."""

    def __init__(self, share: float, count: int, text_of: Callable[[int], str]) -> None:
        self.count = count
        self._text_of = text_of
        self._indices: dict[str, list[int]] = {}
        self._boundary = share
        if count <= SMALL:
            self._boundary = _exact_boundary(share, {_place(text_of(i)) for i in range(count)})
        for part in PARTS:
            if not any(self.has(part, index) for index in range(count)):
                raise DataError(
                    f"None of the {count} items is in the part {part!r}, with held_out={share}: "
                    f"{_REMEDY}."
                )

    def has(self, part: str, index: int) -> bool:
        """Whether item ``index`` is in a part."""
        return (_place(self._text_of(index)) < self._boundary) == (part == "eval")

    def draw(self, part: str, rng: Random) -> int:
        """Return a random item of a part; each has the same probability."""
        while True:  # each part has an item
            index = int(rng.random() * self.count)
            if self.has(part, index):
                return index

    def indices(self, part: str) -> list[int]:
        """Return all items of a part in their order; this reads the whole table, once."""
        if part not in self._indices:
            self._indices[part] = [i for i in range(self.count) if self.has(part, i)]
        return self._indices[part]


def in_part(text: str, part: str, share: float) -> bool:
    """Whether a text is in a part; of many texts about the share is in the part for evaluation."""
    return (_place(text) < share) == (part == "eval")


def _place(text: str) -> float:
    """Return a number from 0 to 1 that depends on the normalised text alone."""
    encoded = normalise(text).encode(errors="surrogatepass")
    return int.from_bytes(blake2b(encoded, digest_size=6).digest(), "big") / 2**48


def _exact_boundary(share: float, places: set[float]) -> float:
    """Return the boundary below which the share of the places is, rounded, but never none or all.

    Raises:
        DataError: there is one place only.
    """
    if len(places) < 2:
        raise DataError(
            f"All items of the data are the same, so that none can be held out: {_REMEDY}."
        )
    below = min(max(round(share * len(places)), 1), len(places) - 1)
    return sorted(places)[below]
