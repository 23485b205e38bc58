"""Plots of a comparison: success and tokens per trainer with 95 % bands, and the time it took."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from gem_compare.results import (
    CellResult,
    count_sampled_tokens,
    groups,
    mean_interval,
    select_shared,
)
from gem_core.errors import RunError
from gem_core.results.plots import new_figure, running_mean, save_figure
from gem_core.runs.trainers import trainer_names

COLOURS = ("#cc79a7", "#009e73", "#e69f00", "#0072b2", "#d55e00", "#56b4e9")
"""Okabe and Ito's; a trainer has that of its place among the names of the installed ones."""


class _Shown(NamedTuple):
    """A metric that is plotted for each baseline.

    Attributes:
        file: beginning of the file name.
        metric: name of the metric.
        label: label of the axis.
        most: largest possible value.
        top: upper end of the axis; ``None`` = from the data.
    """

    file: str
    metric: str
    label: str
    most: float
    top: float | None


_SHOWN = (
    _Shown("curves", "success/mean", "success rate", 1.0, 1.02),
    _Shown("tokens", "tokens/action", "tokens sampled per episode", math.inf, None),
)
_PHASES = ("rollout", "update", "sync")
_PHASE_COLOURS = {
    "rollout": "#56b4e9",
    "update": "#e69f00",
    "sync": "#009e73",
    "other": "#bbbbbb",
}
_COLUMNS = 2
_SMOOTHED = 6


def curves(cells: Iterable[CellResult], folder: Path) -> list[Path]:
    """Draw training success, and tokens sampled per episode, over the steps: a panel per algorithm.

    The thick line is the mean over seeds of the running mean over a sixth of the steps, the band
    its 95 % interval (with two seeds or more).

    Returns:
        ``curves-<baseline>.png`` and ``tokens-<baseline>.png`` of every baseline, in ``folder``.

    Raises:
        RunError: no cell is finished.
    """
    grouped = groups(cell for cell in cells if cell.status == "done")
    if not grouped:
        raise RunError("No cell is finished, so there is nothing to draw.")
    baselines = sorted({baseline for baseline, _, _ in grouped})
    return [
        _picture(baseline, grouped, shown, folder) for baseline in baselines for shown in _SHOWN
    ]


def _picture(
    baseline: str,
    grouped: Mapping[tuple[str, str, str], Sequence[CellResult]],
    shown: _Shown,
    folder: Path,
) -> Path:
    algorithms = sorted({algorithm for name, algorithm, _ in grouped if name == baseline})
    columns = min(_COLUMNS, len(algorithms))
    figure, grid = new_figure(-(-len(algorithms) // columns), columns)
    panels = [axes for row in grid for axes in row]
    for axes, algorithm in zip_longest(panels, algorithms):
        if algorithm is None:
            axes.set_axis_off()
            continue
        for (name, own, trainer), members in grouped.items():
            if (name, own) == (baseline, algorithm):
                _curve(axes, trainer, [_values(member, shown.metric) for member in members], shown)
        axes.set_title(f"{baseline}, {algorithm}", fontsize=9)
        axes.set_ylim(0.0, shown.top)
        axes.legend(frameon=False, fontsize=7, loc="lower right")
    for row in grid:
        row[0].set_ylabel(shown.label)
    for axes in grid[-1]:
        axes.set_xlabel("training step")
    return save_figure(figure, folder / f"{shown.file}-{baseline}.png")


def times(cells: Iterable[CellResult], path: Path) -> Path:
    """Draw the seconds per step (rollout, update, sync and other) and the tokens per second.

    Only experiments that every trainer finished count, so that all did the same work (where there
    is none, every finished experiment).

    Raises:
        RunError: no cell is finished.
    """
    done = select_shared([cell for cell in cells if cell.result])
    if not done:
        raise RunError("No cell is finished, so there is nothing to draw.")
    trainers = sorted({c.trainer for c in done})
    figure, ((axes, rates),) = new_figure(1, 2)
    left = [0.0] * len(trainers)
    own = {trainer: [cell for cell in done if cell.trainer == trainer] for trainer in trainers}
    parts = {trainer: _split(own[trainer]) for trainer in trainers}
    for phase, colour in _PHASE_COLOURS.items():
        widths = [parts[trainer][phase] for trainer in trainers]
        axes.barh(trainers, widths, left=left, color=colour, label=phase)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.set_xlabel("seconds per training step, start-up included")
    axes.legend(frameon=False, fontsize=8)
    rates.barh(trainers, [_rate(own[t]) for t in trainers], color=[_colour(t) for t in trainers])
    rates.set_xlabel("tokens sampled per second of training")
    return save_figure(figure, path)


def _curve(axes: Any, trainer: str, seeds: Sequence[dict[int, float]], shown: _Shown) -> None:
    steps = sorted(set.intersection(*(set(points) for points in seeds)))
    points = [mean_interval([seed[step] for seed in seeds]) for step in steps]
    means = [mean for mean, _ in points]
    colour = _colour(trainer)
    axes.plot(steps, means, color=colour, lw=1.6, label=f"{trainer} ({len(seeds)})")
    if len(seeds) > 1:
        low = [max(0.0, mean - half) for mean, half in points]
        high = [min(shown.most, mean + half) for mean, half in points]
        axes.fill_between(steps, low, high, color=colour, alpha=0.15, lw=0)


def _colour(trainer: str) -> str:
    names = trainer_names()
    return COLOURS[names.index(trainer) % len(COLOURS)] if trainer in names else "#000000"


def _values(cell: CellResult, metric: str) -> dict[int, float]:
    rows = cell.run.metrics()
    values = running_mean([row[metric] for row in rows], max(1, len(rows) // _SMOOTHED))
    return dict(zip((row["step"] for row in rows), values, strict=True))


def _rate(cells: Sequence[CellResult]) -> float:
    seconds = sum(cell.result["seconds"]["train"] for cell in cells if cell.result)
    return sum(map(count_sampled_tokens, cells)) / float(seconds)


def _split(cells: Sequence[CellResult]) -> dict[str, float]:
    """Return the mean seconds per step by phase."""
    totals = dict.fromkeys((*_PHASES, "other"), 0.0)
    steps = 0
    for cell in cells:
        assert cell.result is not None  # the caller passes only finished cells
        seconds = cell.result["seconds"]
        steps += cell.result["steps"]
        known = {phase: seconds.get(phase, 0.0) for phase in _PHASES}
        for phase, spent in known.items():
            totals[phase] += spent
        totals["other"] += max(0.0, seconds["train"] - sum(known.values()))
    return {phase: spent / max(1, steps) for phase, spent in totals.items()}
