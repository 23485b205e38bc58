"""The picture of a lockstep run: one curve for all trainers, and how far rounding moved them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gem_compare.lockstep.differences import ROUNDING
from gem_compare.lockstep.summary import Summary
from gem_compare.plots import COLOURS
from gem_core.results.plots import new_figure, save_figure

_SMALLEST = 1e-8
"""Where a difference of 0 is drawn on the logarithmic axis."""


def picture(
    summary: Summary, path: Path, controls: Mapping[str, list[float | None]] | None = None
) -> Path:
    """Draw success per step, and the largest difference of log-probabilities of every pair.

    Args:
        summary: the experiment.
        path: the file.
        controls: label -> differences per step of runs that were made to differ, for the scale.
    """
    figure, ((curves, sizes),) = new_figure(1, 2)
    steps = range(1, summary["steps"] + 1)
    for place, (name, values) in enumerate(summary["metrics"]["success/mean"].items()):
        width = 1.2 + 1.6 * (len(summary["runs"]) - place)  # wide below, so that all are seen
        curves.plot(steps, values, color=COLOURS[place % len(COLOURS)], lw=width, label=name)
    curves.set_xlabel("training step")
    curves.set_ylabel("success rate in training")
    curves.legend(frameon=False, fontsize=7, loc="lower right")
    for place, pair in enumerate(summary["pairs"]):
        label = f"two trainers ({len(summary['pairs'])} pairs)"
        _line(sizes, pair["drift"], "#0072b2", None if place else label)
    for place, (label, drift) in enumerate((controls or {}).items()):
        _line(sizes, drift, COLOURS[(place + 4) % len(COLOURS)], label)
    sizes.axhline(ROUNDING, color="#888888", ls="--", lw=1, label="bound of rounding at first")
    sizes.set_yscale("log")
    sizes.set_xlabel("training step")
    sizes.set_ylabel("largest difference of log-probabilities", fontsize=8)
    sizes.legend(frameon=False, fontsize=7, loc="lower right")
    return save_figure(figure, path)


def _line(axes: object, drift: list[float | None], colour: str, label: str | None) -> None:
    points = [(k, max(value, _SMALLEST)) for k, value in enumerate(drift, 1) if value is not None]
    axes.plot(*zip(*points, strict=True), color=colour, lw=1, label=label)  # type: ignore[attr-defined]
