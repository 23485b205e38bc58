"""The runs whose memory is measured: sizes of a model, a batch, and how they are computed."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from gem_preflight.activations import Precision
from gem_preflight.shapes import Shape

SIZES = {
    "small": Shape(256, 4, 4, 4, 64, 768, 8192, True),
    "medium": Shape(384, 4, 6, 6, 64, 1152, 8192, True),
    "large": Shape(512, 6, 8, 8, 64, 1536, 16384, True),
    "grouped": Shape(448, 4, 7, 1, 64, 1408, 8192, False),
}
"""``grouped`` has fewer keys than queries and an output head of its own."""

SEEN = ("small", "large"), ("1x1024",)
"""Sizes and batches of which lists of live tensors were read while the terms were written down.

Everything else is held out: no list of it was read, no term changed after it was measured.
"""


@dataclass(frozen=True)
class Case:
    """One run.

    Attributes:
        size: name in `SIZES`.
        rows: rows of a pass.
        length: tokens of a row.
        checkpointing: whether layers are computed again.
        precision: how passes compute.
        passes: passes of an optimizer step; the gradients of the first are there in the second.
    """

    size: str
    rows: int
    length: int
    checkpointing: bool = False
    precision: Precision = "float32"
    passes: int = 2

    @property
    def batch(self) -> str:
        """Rows and length."""
        return f"{self.rows}x{self.length}"

    @property
    def name(self) -> str:
        """A name for people and for the command line."""
        parts = [self.size, self.batch, "checkpointing" if self.checkpointing else "plain"]
        return "-".join([*parts, self.precision, str(self.passes)])

    @property
    def held_out(self) -> bool:
        """Whether no list of live tensors of this run was read while the terms were written."""
        sizes, batches = SEEN
        seen = self.size in sizes and self.batch in batches and self.precision == "float32"
        return not seen


def _cases() -> list[Case]:
    both = (False, True)
    batches = ((1, 1024), (2, 384), (8, 48))
    cases = [Case(size, *batch, again) for size in SIZES for batch in batches for again in both]
    sizes = ("medium", "grouped")
    cases += [Case(size, 2, 384, again, passes=1) for size in sizes for again in both]
    types: tuple[Precision, ...] = ("bfloat16", "autocast")
    for precision in types:
        cases += [Case(size, 2, 384, again, precision) for size in sizes for again in both]
    return cases


CASES = {case.name: case for case in _cases()}


def chosen(names: list[str]) -> list[Case]:
    """Return the cases of these names, or all.

    Raises:
        SystemExit: there is no such case.
    """
    unknown = [name for name in names if name not in CASES]
    if unknown:
        sys.exit(f"No case {unknown}; there are {sorted(CASES)}.")
    return [CASES[name] for name in names] if names else list(CASES.values())
