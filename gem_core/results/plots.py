"""Learning curves, drawn from ``metrics.jsonl`` and ``evals.jsonl``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gem_core.errors import MissingDependencyError, RunError
from gem_core.runs.directory.run_dir import RunDir

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe and Ito
WINDOW = 10
"""Steps of the running mean."""
_PALETTE = 96  # colours: a quarter of the file size without a visible difference
_NAMES = {"success/mean": "success rate", "reward/mean": "return (undiscounted)"}


def learning_curve(
    runs: Iterable[RunDir], path: str | Path, *, metric: str = "success/mean"
) -> Path:
    """Draw a training metric over the steps, one colour per trainer and recipe, and save the plot.

    The thick line is the mean of the last `WINDOW` steps over the seeds of its colour; thin lines
    are the single seeds, or the single steps where there is one seed. Points with bars are
    evaluations and their 95 % intervals.

    Raises:
        MissingDependencyError: matplotlib is missing.
        RunError: no run has the metric.
    """
    groups: dict[str, list[RunDir]] = {}
    for run in runs:
        groups.setdefault(_label(run), []).append(run)
    figure, ((axes,),) = new_figure()
    for colour, (label, members) in zip(_cycle(len(groups)), groups.items(), strict=True):
        _draw(axes, members, label, colour, metric)
    axes.set_xlabel("training step")
    axes.set_ylabel(_NAMES.get(metric, metric))
    if metric == "success/mean":
        axes.set_ylim(0.0, 1.02)
    axes.legend(loc="lower right", frameon=False)
    return save_figure(figure, path)


def running_mean(values: Sequence[float], window: int) -> list[float]:
    """Return the mean of each value and up to ``window - 1`` before it.

    >>> running_mean([0.0, 1.0, 1.0], 2)
    [0.0, 0.5, 1.0]
    """
    means = []
    for end in range(1, len(values) + 1):
        part = values[max(0, end - window) : end]
        means.append(sum(part) / len(part))
    return means


def _draw(axes: Any, runs: Sequence[RunDir], label: str, colour: str, metric: str) -> None:
    curves = []
    for run in runs:
        start = run.recipe.train.start  # a run that continues another one is drawn after it
        points = {start + row["step"]: row[metric] for row in run.metrics() if metric in row}
        if not points:
            raise RunError(f"{run.path} has no metric {metric!r} in metrics.jsonl.")
        curve = dict(zip(points, running_mean(list(points.values()), WINDOW), strict=True))
        thin = points if len(runs) == 1 else curve
        axes.plot(list(thin), list(thin.values()), color=colour, lw=0.8, alpha=0.4)
        _draw_evaluations(axes, run, colour, metric)
        curves.append(curve)
    steps = sorted(set.intersection(*(set(curve) for curve in curves)))
    means = [sum(curve[step] for curve in curves) / len(curves) for step in steps]
    seeds = f", {len(runs)} seeds" if len(runs) > 1 else ""
    axes.plot(steps, means, color=colour, lw=2.0, label=label + seeds)


def _draw_evaluations(axes: Any, run: RunDir, colour: str, metric: str) -> None:
    start = run.recipe.train.start
    for row in run.evals():
        if metric != "success/mean" or "success/low" not in row:
            continue
        mean = row[metric]
        bars = [[mean - row["success/low"]], [row["success/high"] - mean]]
        axes.errorbar(
            [start + row["step"]],
            [mean],
            yerr=bars,
            fmt="o",
            ms=4,
            color=colour,
            capsize=3,
            alpha=0.8,
        )


def _label(run: RunDir) -> str:
    recipe = run.recipe
    return f"{recipe.name}, {run.info['trainer']}, {recipe.algorithm.estimator}"


def _cycle(count: int) -> list[str]:
    return [_COLOURS[k % len(_COLOURS)] for k in range(count)]


def new_figure(rows: int = 1, columns: int = 1) -> tuple[Any, list[list[Any]]]:
    """Return a figure and its grid of axes, without using pyplot's global state.

    Raises:
        MissingDependencyError: matplotlib is missing.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError("Plots need matplotlib: pip install 'gem-core[plot]'.") from (
            error
        )
    figure = Figure(figsize=(max(6.4, 4.2 * columns), 3.8 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, columns, squeeze=False).tolist()
    for axes in (axes for row in grid for axes in row):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    return figure, grid


def save_figure(figure: Any, path: str | Path) -> Path:
    """Save a figure; a PNG is small enough to commit and has no metadata that vary."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=150)
    if target.suffix == ".png":
        from PIL import Image  # matplotlib depends on it

        with Image.open(target) as picture:
            flat = picture.convert("RGB").quantize(_PALETTE)
        flat.save(target, optimize=True)
    return target
