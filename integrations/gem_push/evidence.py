"""What was measured of a run besides its own evaluations: controls and lockstep."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gem_core.errors import RunError
from gem_core.evaluation.controls.file import read_controls
from gem_core.runs.directory import files as run_files
from gem_core.runs.directory.run_dir import RunDir

LOCKSTEP_FORMAT = 1
"""The one of ``gem_compare.lockstep.summary`` that is read here."""


class Pair(msgspec.Struct):
    """Two trainers: the steps from the first in which they drew the same tokens."""

    trainers: list[str]
    identical: int


class Summary(msgspec.Struct):
    """A lockstep summary: what is read of it."""

    format: int
    baseline: str
    seed: int
    steps: int
    runs: dict[str, dict[str, Any]]
    pairs: list[Pair]


class Measurements(NamedTuple):
    """What the card says besides; an empty one says nothing.

    Attributes:
        controls: name of a control -> its success.
        lockstep: other trainer -> steps with the same tokens.
        steps: of the experiment in lockstep.
    """

    controls: dict[str, float]
    lockstep: dict[str, int]
    steps: int


def read_evidence(run: RunDir, controls: Path | None, lockstep: Path | None) -> Measurements:
    """Read the files that were named, and hold them against the run.

    Raises:
        RunError: a file is damaged, or belongs to another experiment.
    """
    success = _controls(run, controls) if controls is not None else {}
    if lockstep is None:
        return Measurements(success, {}, 0)
    summary = _summary(lockstep)
    trainer = str(run.info["trainer"])
    _require_same(lockstep, "recipe", summary.baseline, run.recipe.name)
    _require_same(lockstep, "seed", summary.seed, run.recipe.seed)
    others = {
        other: pair.identical
        for pair in summary.pairs
        if trainer in pair.trainers
        for other in pair.trainers
        if other != trainer
    }
    if not others:
        raise RunError(f"{lockstep} has no pair with {trainer}: leave --lockstep out.")
    return Measurements(success, others, summary.steps)


def _controls(run: RunDir, path: Path) -> dict[str, float]:
    controls = read_controls(path)
    _require_same(path, "recipe", controls.name, run.recipe.name)
    return dict(controls.success)


def _summary(path: Path) -> Summary:
    try:
        summary = msgspec.convert(run_files.read_object(path), Summary)
    except FileNotFoundError:
        raise RunError(f"{path} does not exist: name a file of lockstep/.") from None
    except msgspec.ValidationError as error:
        raise RunError(f"{path} is no lockstep summary: {error}.") from None
    if summary.format != LOCKSTEP_FORMAT:
        raise RunError(f"{path} has the format {summary.format}; this version reads 1.")
    return summary


def _require_same(path: Path, what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise RunError(f"{path} is of the {what} {found!r}, the run of {wanted!r}: leave it out.")
