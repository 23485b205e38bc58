"""The page of a comparison: the viewer with its runs in one file, and the tables of the cells."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gem_compare.agreement import side_by_side
from gem_compare.results import HEAD, CellResult, summary_rows
from gem_core.results import origin_lines
from gem_view.api import Viewer
from gem_view.export import EPISODES, export

_ALL_EPISODES = 1000
"""So many episodes of all runs together are in the page."""


def write_page(
    folder: Path, cells: Sequence[CellResult], pictures: Iterable[Path], target: Path
) -> Path:
    """Write the page of the comparison in ``folder``, with ``pictures`` in it."""
    viewer = Viewer([folder], allow_none=True)
    episodes = min(EPISODES, max(1, _ALL_EPISODES // max(1, len(viewer.runs))))
    return export(viewer, target, episodes, _report(cells, pictures))


def _report(cells: Sequence[CellResult], pictures: Iterable[Path]) -> dict[str, Any]:
    done = [cell for cell in cells if cell.result]
    failed = [
        f"{cell.name}: {cell.reason}" for cell in cells if cell.status in ("failed", "damaged")
    ]
    sections = [
        _table("After training, side by side", *side_by_side(cells)),
        _table("Every trainer and algorithm", HEAD, summary_rows(cells)),
        {"title": "Failed", "items": failed},
        {"title": "Plots", "pictures": [_picture(path) for path in pictures]},
        _table("Where it ran", ("trainer", "Python", "versions", "hardware"), _hardware(done)),
        {"title": "Origin", "items": origin_lines(cell.result for cell in done if cell.result)},
    ]
    filled = [section for section in sections if any(section.get(key) for key in _CONTENTS)]
    return {"summary": f"{len(done)} of {len(cells)} cells finished.", "sections": filled}


_CONTENTS = ("rows", "items", "pictures")


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> dict[str, Any]:
    return {"title": title, "head": head, "rows": list(rows)}


def _picture(path: Path) -> dict[str, str]:
    return {"name": path.stem, "data": base64.b64encode(path.read_bytes()).decode()}


def _hardware(cells: Sequence[CellResult]) -> Iterable[Sequence[str]]:
    """Return versions and hardware, a row per trainer."""
    rows = {}
    for cell in cells:
        assert cell.result is not None  # the caller passes only finished cells
        hardware = cell.result["hardware"]
        versions = " ".join(f"{k} {v}" for k, v in cell.result["versions"].items())
        gpus = ", ".join(hardware["gpus"]) or "no GPU"
        where = f"{hardware['processor']}, {hardware['cores']} cores, {gpus}"
        rows[cell.trainer] = (cell.trainer, cell.result["python"], versions, where)
    return rows.values()
