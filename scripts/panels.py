"""Small pictures of curves as SVG text: the same figures always give the same file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 240, 150
_LEFT, _TOP, _RIGHT, _BOTTOM = 30, 22, 8, 18
_LEGEND = 30


class Curve(NamedTuple):
    """A line of a panel.

    Attributes:
        values: success at each step, from 0 to 1.
        colour: of the line.
        dash: ``stroke-dasharray``; empty for a solid line.
    """

    values: Sequence[float]
    colour: str
    dash: str = ""


class Entry(NamedTuple):
    """An entry of the legend.

    Attributes:
        x: where it begins.
        text: what it says.
        colour: of its line.
        dash: of its line.
    """

    x: int
    text: str
    colour: str
    dash: str = ""


def picture(
    panels: Sequence[tuple[str, Sequence[Curve]]], legend: Sequence[Entry], columns: int
) -> str:
    """Return the SVG text: a panel for each title, also where it has no curve."""
    width = columns * WIDTH
    height = _LEGEND + -(-len(panels) // columns) * HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for entry in legend:
        parts.append(
            f'<path d="M{entry.x} 15h22" stroke="{entry.colour}" stroke-width="2"'
            f"{_dashes(entry.dash)}/>"
            f'<text x="{entry.x + 28}" y="19">{escape(entry.text)}</text>'
        )
    for number, (title, curves) in enumerate(panels):
        x = number % columns * WIDTH
        y = _LEGEND + number // columns * HEIGHT
        parts += [f'<g transform="translate({x} {y})">', *_panel(title, curves), "</g>"]
    return "\n".join([*parts, "</svg>", ""])


def _panel(title: str, curves: Sequence[Curve]) -> list[str]:
    right = WIDTH - _RIGHT
    parts = [f'<text x="{_LEFT}" y="14">{escape(title)}</text>']
    for value in (0.0, 0.5, 1.0):
        y = _y(value)
        parts.append(
            f'<path d="M{_LEFT} {y:g}H{right}" stroke="#dddddd"/>'
            f'<text x="{_LEFT - 4}" y="{y + 4:g}" text-anchor="end" fill="#555555">{value:g}</text>'
        )
    if not curves:
        middle = (_LEFT + right) / 2
        parts.append(
            f'<text x="{middle:g}" y="{_y(0.6):g}" text-anchor="middle" fill="#b00020">'
            "no run</text>"
        )
        return parts
    longest = max(len(curve.values) for curve in curves)
    parts.append(
        f'<text x="{right}" y="{HEIGHT - _BOTTOM + 13}" text-anchor="end" fill="#555555">'
        f"{longest} steps</text>"
    )
    return parts + [_line(curve, longest) for curve in curves]


def _line(curve: Curve, longest: int) -> str:
    span = (WIDTH - _RIGHT - _LEFT) / max(1, longest - 1)
    points = [f"{_LEFT + n * span:.1f},{_y(value):.1f}" for n, value in enumerate(curve.values)]
    return (
        f'<polyline points="{" ".join(points)}" fill="none" stroke="{curve.colour}" '
        f'stroke-width="1.3"{_dashes(curve.dash)}/>'
    )


def _dashes(dash: str) -> str:
    return f' stroke-dasharray="{dash}"' if dash else ""


def _y(success: float) -> float:
    return HEIGHT - _BOTTOM - success * (HEIGHT - _BOTTOM - _TOP)
