"""The kept runs of a pretrained model, and what their seeds show together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from gem_core.errors import GemError
from gem_core.evaluation.controls.file import PLAYERS, STARTS, read_controls
from gem_core.evaluation.criterion import Evidence, Table, weigh
from gem_core.evaluation.outcomes import read_outcomes
from gem_core.runs.directory.run_dir import RunDir

EVALUATIONS = [(when, greedy) for when in ("before", "after") for greedy in (False, True)]
"""Evaluations of a run: when, and whether greedily. Those before training are of the warm start."""


class Kept(NamedTuple):
    """A finished run and where its controls and times are."""

    run: RunDir
    folder: Path

    @property
    def controls(self) -> Path:
        """The folder with ``controls.json``."""
        inner = self.folder / "controls"
        return inner if inner.is_dir() else self.folder


def weigh_runs(kept: Sequence[Kept]) -> Evidence:
    """Compare finished runs of one recipe with their controls, task by task and seed by seed.

    Args:
        kept: one run for each seed, with ``eval.greedy``.

    Raises:
        GemError: an evaluation or a control is missing, or the runs have different recipes.
    """
    recipes = [replace(one.run.recipe, seed=0) for one in kept]
    if any(recipe != recipes[0] for recipe in recipes):
        names = ", ".join(one.folder.name for one in kept)
        raise GemError(f"{names} have different recipes: delete those of the older one.")
    sampled, greedy, counts = [], [], []
    played: dict[str, list[str]] = {}
    for one in kept:
        outcomes = read_outcomes(one.run)
        missing = [key for key in EVALUATIONS if key not in outcomes]
        if missing:
            raise GemError(f"{one.run.path} lacks the evaluations {missing}: set eval.greedy.")
        tasks = one.run.result["eval_tasks"]
        if tasks is None or tasks["compared"] < tasks["training_tasks"]:
            raise GemError(f"{one.run.path}: its evaluation tasks were not compared with training.")
        sampled.append(outcomes["after", False].success)
        greedy.append(outcomes["after", True].success)
        counts.append(tasks)
        controls = read_controls(one.controls)
        for name in PLAYERS:
            played.setdefault(name, []).append(controls.outcomes[name][0])
        for name, is_greedy in zip(STARTS, (False, True), strict=True):
            played.setdefault(name, []).append(outcomes["before", is_greedy].success)
    return weigh(
        outcome_table(sampled),
        {name: outcome_table(texts) for name, texts in played.items()},
        distinct=min(tasks["distinct"] for tasks in counts),
        seen=max(tasks["seen_in_training"] for tasks in counts),
        greedy=outcome_table(greedy),
    )


def outcome_table(texts: Sequence[str]) -> Table:
    """Return outcomes as numbers, shape (seeds, tasks)."""
    if len({len(text) for text in texts}) != 1:
        raise GemError("The seeds of a recipe were evaluated on different numbers of tasks.")
    return np.array([[character == "1" for character in text] for text in texts], dtype=float)
