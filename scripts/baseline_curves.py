"""The picture of the baselines: a small panel each, success over the steps of training, as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import panels

from gem_compare.results import CellResult
from gem_core.results.plots import running_mean

TRAINERS = ("trl", "verl", "openrlhf", "oat", "rl2")
COLOURS = {
    "trl": "#0072b2",
    "verl": "#d55e00",
    "openrlhf": "#009e73",
    "oat": "#cc79a7",
    "rl2": "#e69f00",
}
DASHES = {"rebn": "", "reinforce": "4 3"}
"""The algorithms that are drawn, each with its kind of line."""
_COLUMNS = 4
_WINDOW = 3


def picture(names: Sequence[str], cells: Iterable[CellResult]) -> str:
    """Return the SVG text: a panel for each baseline of ``names``, also where no cell is there."""
    drawn = [cell for cell in cells if cell.result and cell.algorithm in DASHES]
    titled = [(name, [_curve(c) for c in drawn if c.baseline == name]) for name in names]
    legend = [panels.Entry(30 + 100 * n, t, COLOURS[t]) for n, t in enumerate(TRAINERS)]
    for number, (algorithm, dash) in enumerate(DASHES.items()):
        legend.append(panels.Entry(560 + 110 * number, algorithm, "#333333", dash))
    return panels.picture(titled, legend, _COLUMNS)


def _curve(cell: CellResult) -> panels.Curve:
    values = [row["success/mean"] for row in cell.run.metrics()]
    smooth = running_mean(values, _WINDOW)
    return panels.Curve(list(smooth), COLOURS[cell.trainer], DASHES[cell.algorithm])
