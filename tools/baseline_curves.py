"""The picture of the baselines: a small panel each, success over the steps of training, as SVG.

Text without a plotting package, so that the same figures always give the same file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.sax.saxutils import escape

from gem_core.compare.results import CellResult
from gem_core.report.plots import running_mean

TRAINERS = ("trl", "verl", "openrlhf", "oat", "rl2")
COLOURS = {
    "trl": "#0072b2",
    "verl": "#d55e00",
    "openrlhf": "#009e73",
    "oat": "#cc79a7",
    "rl2": "#e69f00",
}
DASHES = {"rebn": "", "reinforce": ' stroke-dasharray="4 3"'}
"""The algorithms that are drawn, each with its kind of line."""
_COLUMNS = 4
_WIDTH, _HEIGHT = 240, 150
_LEFT, _TOP, _RIGHT, _BOTTOM = 30, 22, 8, 18
_LEGEND = 30
_WINDOW = 3


def picture(names: Sequence[str], cells: Iterable[CellResult]) -> str:
    """Return the SVG text: a panel for each baseline of ``names``, also where no cell is there."""
    cells = [cell for cell in cells if cell.result and cell.algorithm in DASHES]
    rows = -(-len(names) // _COLUMNS)
    width = _COLUMNS * _WIDTH
    height = _LEGEND + rows * _HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        *_legend(),
    ]
    for number, name in enumerate(names):
        x = number % _COLUMNS * _WIDTH
        y = _LEGEND + number // _COLUMNS * _HEIGHT
        mine = [cell for cell in cells if cell.baseline == name]
        parts += [f'<g transform="translate({x} {y})">', *_panel(name, mine), "</g>"]
    return "\n".join([*parts, "</svg>", ""])


def _legend() -> list[str]:
    parts = []
    for number, trainer in enumerate(TRAINERS):
        x = 30 + 100 * number
        parts.append(
            f'<path d="M{x} 15h20" stroke="{COLOURS[trainer]}" stroke-width="2"/>'
            f'<text x="{x + 25}" y="19">{trainer}</text>'
        )
    for number, (algorithm, dash) in enumerate(DASHES.items()):
        x = 560 + 110 * number
        parts.append(
            f'<path d="M{x} 15h24" stroke="#333333" stroke-width="2"{dash}/>'
            f'<text x="{x + 30}" y="19">{algorithm}</text>'
        )
    return parts


def _panel(name: str, cells: Sequence[CellResult]) -> list[str]:
    right = _WIDTH - _RIGHT
    bottom = _HEIGHT - _BOTTOM
    parts = [f'<text x="{_LEFT}" y="14">{escape(name)}</text>']
    for value in (0.0, 0.5, 1.0):
        y = _y(value)
        parts.append(
            f'<path d="M{_LEFT} {y:g}H{right}" stroke="#dddddd"/>'
            f'<text x="{_LEFT - 4}" y="{y + 4:g}" text-anchor="end" fill="#555555">{value:g}</text>'
        )
    if not cells:
        middle = (_LEFT + right) / 2
        parts.append(
            f'<text x="{middle:g}" y="{_y(0.6):g}" text-anchor="middle" fill="#b00020">'
            "no run</text>"
        )
        return parts
    curves = [(cell, [row["success/mean"] for row in cell.run.metrics()]) for cell in cells]
    longest = max(len(values) for _, values in curves)
    parts.append(
        f'<text x="{right}" y="{bottom + 13}" text-anchor="end" fill="#555555">'
        f"{longest} steps</text>"
    )
    return parts + [_line(cell, values, longest) for cell, values in curves]


def _line(cell: CellResult, values: Sequence[float], longest: int) -> str:
    span = (_WIDTH - _RIGHT - _LEFT) / max(1, longest - 1)
    points = [
        f"{_LEFT + step * span:.1f},{_y(value):.1f}"
        for step, value in enumerate(running_mean(values, _WINDOW))
    ]
    return (
        f'<polyline points="{" ".join(points)}" fill="none" stroke="{COLOURS[cell.trainer]}" '
        f'stroke-width="1.3"{DASHES[cell.algorithm]}/>'
    )


def _y(success: float) -> float:
    return _HEIGHT - _BOTTOM - success * (_HEIGHT - _BOTTOM - _TOP)
