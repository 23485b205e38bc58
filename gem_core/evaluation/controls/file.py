"""``controls.json``: the outcome of every evaluation task, for each control.

Tasks are in the order of a run's evaluation, so that the outcomes of a run's own evaluation
(``outcomes.jsonl``) are paired with them by position.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from gem_core.errors import RunError
from gem_core.runs.directory import files as run_files

FILE = "controls.json"
FORMAT = 1
"""Increase it when the meaning of a field changes."""
PLAYERS = ("random", "constant", "sequence")
"""The controls without a model."""
STARTS = ("start_sampled", "start_greedy")
"""The model before training, sampled as the recipe says, and greedily."""
CONTROLS = (*PLAYERS, *STARTS)


class FitRecord(msgspec.Struct, frozen=True):
    """What `gem_core.evaluation.controls.blind` fitted for an environment.

    Attributes:
        constant: the best constant answer.
        constant_success: its share of successes on the training tasks.
        sequence: the best blind sequence.
        sequence_success: its share of successes on the training tasks.
        tasks: number of training tasks.
    """

    constant: str
    constant_success: float
    sequence: tuple[str, ...]
    sequence_success: float
    tasks: int


class Controls(msgspec.Struct, frozen=True, kw_only=True):
    """The file."""

    format: int
    kind: Literal["controls"]
    name: str
    """Name of the recipe."""
    seed: int
    """Seed of the run whose training tasks were played by the fit."""
    tasks: list[int]
    """Tasks of each environment; the environments take turns."""
    outcomes: dict[str, list[str]]
    """Control -> one text per sample, with ``1`` or ``0`` for each task: success."""
    success: dict[str, float]
    """Control -> mean of its outcomes."""
    fit: dict[str, FitRecord]
    """Id of the environment -> what was fitted."""
    start: str | None
    """Name of the model before training; ``None``: it was not played."""
    data: list[dict[str, Any]] | None
    versions: dict[str, str]
    hardware: dict[str, Any]
    python: str
    commit: str | None


def write_controls(folder: Path, controls: Controls) -> None:
    """Write the file, as one line per entry of its tables."""
    run_files.write_object(folder / FILE, msgspec.to_builtins(controls))


def read_controls(path: Path) -> Controls:
    """Read a file that `write_controls` wrote; ``path`` names it or its folder.

    Raises:
        RunError: there is none, or it is damaged.
    """
    file = path / FILE if path.is_dir() else path
    try:
        data = run_files.read_object(file)
    except FileNotFoundError:
        raise RunError(f"There is no {file}: `gem-core controls` makes it.") from None
    return run_files.convert(data, Controls, str(file))
