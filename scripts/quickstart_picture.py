"""The learning curve of the quickstart as SVG, for `readme.py`: same cells, same file."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from concept_pictures import BLUE, GREEN, GREY, RED, line, svg, write
from quickstart_figures import Judged, success

WIDTH, HEIGHT = 720, 330
LEFT, TOP, RIGHT, BOTTOM = 50, 66, 20, 46
DASHES = "6 4"


def picture(judged: Judged) -> str:
    """Return success over the steps of training, of each seed and in the mean.

    The curve is that of training's own episodes. Points are the evaluations on held-out tasks
    before and after training, and the dashed line is the highest control on these.
    """
    curves = [cell.training for cell in judged.cells]
    steps = len(curves[0])
    parts = [*axes(steps), *legend(len(curves))]
    parts.append(level(judged.best.success))
    if len(curves) > 1:
        parts += [path(curve, 1, 0.35) for curve in curves]
    parts.append(path([mean(column) for column in zip(*curves, strict=True)], 2.5, 1))
    for step, when in ((0, "before"), (steps, "after")):
        rates = [success(getattr(cell, when)) for cell in judged.cells]
        if len(rates) > 1:
            parts += [dot(across(step, steps), up(rate), 3, 0.45) for rate in rates]
        parts.append(dot(across(step, steps), up(mean(rates)), 6, 1))
    return svg(WIDTH, HEIGHT, parts)


def axes(steps: int) -> list[str]:
    """Return grid lines for success, and ten or fewer numbers of steps."""
    parts = []
    for value in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(line(LEFT, up(value), WIDTH - RIGHT, up(value), GREY))
        parts.append(write(LEFT - 8, up(value) + 4, f"{value:g}", anchor="end"))
    for step in range(0, steps + 1, max(1, -(-steps // 6))):
        parts.append(write(across(step, steps), HEIGHT - BOTTOM + 18, str(step), anchor="middle"))
    middle = (LEFT + WIDTH - RIGHT) / 2
    return [*parts, write(middle, HEIGHT - 10, "training step", anchor="middle")]


def legend(seeds: int) -> list[str]:
    """Return what the marks are, in two rows."""
    thin, small = (
        f", mean of {seeds} seeds; {mark}: each" if seeds > 1 else "" for mark in ("thin", "small")
    )
    second = 430
    return [
        f'<path d="M{LEFT} 18h26" stroke="{BLUE}" stroke-width="2.5"/>',
        write(LEFT + 34, 22, f"success in training{thin}"),
        dot(LEFT + 13, 42, 6, 1),
        write(LEFT + 34, 46, f"held-out tasks, before and after{small}"),
        f'<path d="M{second} 18h26" stroke="{RED}" stroke-dasharray="{DASHES}"/>',
        write(second + 34, 22, "highest control on the held-out tasks"),
    ]


def level(value: float) -> str:
    """Return a dashed line across the picture."""
    y = f"{up(value):.1f}"
    return f'<path d="M{LEFT} {y}H{WIDTH - RIGHT}" stroke="{RED}" stroke-dasharray="{DASHES}"/>'


def path(values: Sequence[float], width: float, opacity: float) -> str:
    """Return a curve with a value for each step, from step 1 on."""
    steps = len(values)
    places = (f"{across(k, steps):.1f},{up(value):.1f}" for k, value in enumerate(values, 1))
    return (
        f'<polyline points="{" ".join(places)}" fill="none" stroke="{BLUE}" '
        f'stroke-width="{width:g}" opacity="{opacity:g}"/>'
    )


def dot(x: float, y: float, radius: float, opacity: float) -> str:
    """Return a point."""
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{GREEN}" opacity="{opacity:g}"/>'
    )


def across(step: int, steps: int) -> float:
    """Return the place of a step from the left."""
    return LEFT + step * (WIDTH - RIGHT - LEFT) / steps


def up(value: float) -> float:
    """Return the place of a success from the top."""
    return HEIGHT - BOTTOM - value * (HEIGHT - BOTTOM - TOP)
