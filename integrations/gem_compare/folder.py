"""The directory of a comparison: one runner at a time, and only one kind of comparison."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from gem_core.errors import RunError
from gem_core.runs.directory.files import read_object
from gem_core.runs.directory.lock import hold

_MARK = "comparison.json"


@contextmanager
def claim(out: Path, quick: bool) -> Iterator[None]:
    """Lock the directory ``out`` for one runner.

    Args:
        out: directory of the comparison; created if it does not exist.
        quick: whether the cells are those of ``--quick``, which measure nothing.

    Raises:
        RunError: another process runs a comparison there, or it has results of the other kind.
    """

    def refuse(holder: str) -> str:
        advice = "wait for it, or name another directory with --out."
        return f"Another comparison ({holder}) is running in {out}: {advice}"

    with hold(out / "comparison.lock", refuse):
        _check_kind(out, quick)
        yield


class _Mark(msgspec.Struct):
    quick: bool


def _check_kind(out: Path, quick: bool) -> None:
    mark = out / _MARK
    if mark.exists():
        before = bool(read_object(mark, _Mark)["quick"])
    elif any(out.glob("*/*/*/seed*/result.json")):
        before = False  # older than the file `_MARK`
    else:
        mark.write_text(json.dumps({"quick": quick}) + "\n", encoding="utf-8")
        return
    if before != quick:
        kinds = {True: "of --quick, which measure nothing", False: "of a full comparison"}
        raise RunError(
            f"{out} holds cells {kinds[before]}; use another directory (--out) for those "
            f"{kinds[quick]}."
        )
