"""One cell of the study: what a run and its controls did, as one JSON file.

A cell is a baseline, a trainer, an algorithm and a seed in the profile ``learn``. Its file is
``results/<baseline>/<trainer>/<algorithm>/seed<seed>.json``.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from gem_compare.grid import Cell
from gem_compare.lockstep.traces import digest, read_trace
from gem_compare.recipes import differing_keys
from gem_core.errors import GemError, RunError
from gem_core.evaluation.controls.file import CONTROLS, FitRecord, read_controls
from gem_core.evaluation.outcomes import read_outcomes
from gem_core.runs.directory import files as run_files
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import stored_recipe

PROFILE = "learn"
FORMAT = 1
"""Increase it when the meaning of a field changes."""
RESULTS = Path(__file__).resolve().parent / "results"


class Played(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An evaluation: success of every task as ``1`` or ``0``, as `outcomes` writes it."""

    sampled: str
    greedy: str


class LearnCell(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file of a cell."""

    format: int
    baseline: str
    trainer: str
    algorithm: str
    seed: int
    overrides: list[str]
    """The ``--set`` of its training."""
    recipe: dict[str, Any]
    """The resolved recipe of the run."""
    eval_tasks: dict[str, int]
    """Distinct evaluation tasks, and how many of them were trained on: `task_overlap`."""
    before: Played
    after: Played
    controls: dict[str, str]
    """Control -> success of every task of the evaluation, in the same order."""
    fit: dict[str, FitRecord]
    """What the blind players were fitted to, by environment."""
    tokens: list[str]
    """Digest of all prompts and actions of each training step, see `lockstep.traces.digest`."""
    training: list[float]
    """Success of the sampled training episodes in each step."""
    seconds: dict[str, float]
    """By phase of the run; ``controls``; and ``total``, both commands with their imports."""
    commit: str | None
    versions: dict[str, str]
    hardware: dict[str, Any]
    python: str

    @property
    def cell(self) -> Cell:
        """Its place in the grid."""
        return Cell(self.baseline, self.trainer, self.algorithm, self.seed)


def cell_file(results: Path, cell: Cell) -> Path:
    """Return the path of a cell's file."""
    return results / f"{cell.name}.json"


def read_cell(path: Path) -> LearnCell:
    """Read the file of a cell.

    Raises:
        RunError: it is damaged, or of another version.
    """
    try:
        cell = msgspec.convert(run_files.read_object(path), LearnCell)
    except (FileNotFoundError, msgspec.ValidationError) as error:
        raise RunError(f"{path} is not the file of a cell: {error}; delete it.") from None
    if cell.format != FORMAT:
        raise RunError(f"{path} has format {cell.format}, not {FORMAT}: measure the cell again.")
    return cell


def read_learn_cells(results: Path) -> list[LearnCell]:
    """Return all cells below a folder, in the order of their names.

    Raises:
        RunError: a file is damaged or in the place of another cell, or cells of one baseline and
            algorithm have different recipes, so that they are not seeds of one experiment.
    """
    cells = []
    for path in sorted(results.glob("*/*/*/seed*.json")):
        cell = read_cell(path)
        if cell_file(results, cell.cell) != path:
            raise RunError(f"{path} is of {cell.cell.name}: move it there.")
        cells.append(cell)
    refuse_mixed_recipes(cells)
    return cells


def write_cell(results: Path, cell: LearnCell) -> None:
    """Write the file of a cell; a process that is killed leaves none, or the old one."""
    path = cell_file(results, cell.cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    run_files.write_object(path, msgspec.to_builtins(cell))


def collect_cell(cell: Cell, run: RunDir, controls: Path, overrides: Iterable[str]) -> LearnCell:
    """Read what the file of a cell keeps of its finished run.

    Args:
        cell: the cell.
        run: its run.
        controls: the folder of ``gem-core controls``.
        overrides: of the training.

    Raises:
        RunError: a file is missing or damaged, or a step has not all its episodes.
        GemError: the run cannot be judged: its tasks were not compared, or not all of them.
    """
    result = run.result
    played = read_controls(controls)
    return LearnCell(
        format=FORMAT,
        baseline=Path(cell.baseline).stem,
        trainer=cell.trainer,
        algorithm=cell.algorithm,
        seed=cell.seed,
        overrides=list(overrides),
        recipe=run.recipe.to_dict(),
        eval_tasks=_compared(run, result["eval_tasks"]),
        before=_played(run, "before"),
        after=_played(run, "after"),
        controls={name: _one_sample(played.outcomes, name) for name in CONTROLS},
        fit=played.fit,
        tokens=token_digests(run),
        training=[round(row["success/mean"], 4) for row in run.metrics()],
        seconds=dict(result["seconds"]),
        commit=result["commit"],
        versions=result["versions"],
        hardware=result["hardware"],
        python=result["python"],
    )


def token_digests(run: RunDir) -> list[str]:
    """Return the digest of all prompts and actions of each training step.

    Raises:
        RunError: a step has not all its episodes.
    """
    batches = read_trace(run).batches
    return [digest(batches[step]) for step in sorted(batches)]


def equal_steps(cell: LearnCell, other: LearnCell) -> int:
    """Return for how many training steps, from the first, two cells drew the same tokens."""
    pairs = zip(cell.tokens, other.tokens, strict=False)
    equal = [one == two for one, two in pairs]
    return equal.index(False) if False in equal else len(equal)


def has_other_recipe(cell: LearnCell, asked: Cell, extra: Iterable[str] = ()) -> bool:
    """Return whether a cell was made of another recipe than the one that is asked for now."""
    return bool(differing_keys(stored_recipe(cell.recipe), asked.recipe(PROFILE, list(extra))))


def refuse_mixed_recipes(cells: Iterable[LearnCell]) -> None:
    """Check that cells of one baseline and algorithm differ in seed and trainer only.

    Raises:
        RunError: they do not.
    """
    first: dict[tuple[str, str], LearnCell] = {}
    for cell in cells:
        model = first.setdefault((cell.baseline, cell.algorithm), cell)
        if model.recipe == {**cell.recipe, "seed": model.seed}:
            continue
        keys = differing_keys(stored_recipe(cell.recipe), stored_recipe(model.recipe))
        keys = [key for key in keys if not key.startswith(("seed ", "trainer."))]
        if keys:
            raise RunError(
                f"{cell.cell.name} and {model.cell.name} have different recipes ({keys[0]}): "
                "measure the older one again, by deleting its file."
            )


def _played(run: RunDir, when: str) -> Played:
    outcomes = read_outcomes(run)
    missing = [greedy for greedy in (False, True) if (when, greedy) not in outcomes]
    if missing:
        raise GemError(
            f"{run.path} has no {'greedy ' if missing[0] else ''}evaluation {when} training: "
            "set eval.greedy and eval.episodes."
        )
    return Played(outcomes[when, False].success, outcomes[when, True].success)


def _compared(run: RunDir, counts: dict[str, int] | None) -> dict[str, int]:
    """Return the counts of `task_overlap` if they are of all training tasks."""
    if counts is None:
        raise GemError(f"{run.path}: its evaluation tasks cannot be compared with training's.")
    if counts["compared"] < counts["training_tasks"]:
        raise GemError(
            f"{run.path}: only {counts['compared']} of {counts['training_tasks']} training tasks "
            "were compared; train fewer."
        )
    return counts


def _one_sample(outcomes: dict[str, list[str]], name: str) -> str:
    if name not in outcomes:
        raise GemError(f"The control {name} was not played: leave out --players-only.")
    (text,) = outcomes[name]
    return text
