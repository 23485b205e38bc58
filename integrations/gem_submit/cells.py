"""The grid: recipes x trainers x seeds. Each cell is one ``gem-core train`` in its own folder.

The folders are those of ``gem-core compare``, ``RECIPE/TRAINER/ESTIMATOR/seedN``, so that its
``--report-only`` makes the report of a grid that ran on a cluster. All that could be refused is
refused here, before a job has waited for its turn.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from gem_compare.recipes import why_stale
from gem_compare.runner import trainer_python
from gem_core.errors import GemError
from gem_core.runs.recipe.checks import require_name
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.trainers import get_trainer, resolve


@dataclass(frozen=True)
class GridCell:
    """One run of the grid.

    Attributes:
        out: folder of the grid, absolute.
        name: the cell's folder below it.
        recipe: its resolved recipe.
        command: the arguments of its process; no shell reads them.
    """

    out: Path
    name: str
    recipe: Recipe
    command: tuple[str, ...]

    @property
    def folder(self) -> Path:
        """Its run directory."""
        return self.out / self.name


def make_cells(arguments: argparse.Namespace) -> list[GridCell]:
    """Return all cells; the seed changes last, so that a grid that is cut short is balanced.

    Raises:
        GemError: no recipe or trainer is named, or two cells have one folder.
        MissingDependencyError: there is no Python for a trainer.
        RecipeError: a recipe is wrong, or refused by its trainer, or is for several nodes.
        UnknownNameError: a trainer does not exist.
    """
    if not arguments.baselines or not arguments.trainers:
        raise GemError("Name baselines and --trainers, or a folder with --status.")
    for name in arguments.trainers:
        get_trainer(name)
    pythons = {name: trainer_python(name) for name in arguments.trainers}
    out = _printable(arguments.out.absolute())
    seeds: Iterable[int | None] = arguments.seeds or [None]
    grid = product(seeds, arguments.baselines, arguments.trainers)
    cells = [
        _cell(arguments, out, baseline, trainer, seed, pythons[trainer])
        for seed, baseline, trainer in grid
    ]
    _refuse_twins(cells)
    return cells


def refuse_stale(cells: Sequence[GridCell]) -> None:
    """Raise GemError if a folder has a run of another recipe than its cell."""
    for cell in cells:
        if (cell.folder / "recipe.json").exists():
            reason = why_stale(cell.folder, cell.recipe)
            if reason:
                raise GemError(
                    f"{cell.folder} is a run of another recipe: {reason}. Choose another --out, or "
                    "delete it; nothing was submitted."
                )


def count_gpus(cells: Sequence[GridCell], asked: int | None, by_option: bool) -> int | None:
    """Return the GPUs that each job asks for; ``None`` = none.

    Args:
        cells: the grid; its jobs ask for the same.
        asked: what the user asks for; ``None`` = what the recipes say.
        by_option: whether an option of sbatch (``--slurm gres=gpu:8``) asks for them.

    Raises:
        GemError: it is too few for a recipe, or the recipes say different numbers.
    """
    counts = {}
    for cell in cells:
        hardware = cell.recipe.hardware
        counts[hardware.gpus_per_node if hardware.device == "gpu" else 0] = cell.name
    most = max(counts)
    if asked is not None and asked < most:
        raise GemError(
            f"--gpus {asked} is less than hardware.gpus_per_node = {most} of {counts[most]}: ask "
            f"for {most}, or set the key."
        )
    if asked is not None or by_option:
        return asked
    if len(counts) > 1:
        said = ", ".join(f"{number} ({name})" for number, name in sorted(counts.items()))
        raise GemError(f"The cells need different numbers of GPUs, {said}: submit them apart.")
    return most or None


def _cell(
    arguments: argparse.Namespace,
    out: Path,
    baseline: str,
    trainer: str,
    seed: int | None,
    python: str,
) -> GridCell:
    require_name(Path(baseline).stem, "baseline")
    overrides = [*([] if seed is None else [f"seed={seed}"]), *arguments.overrides]
    recipe = load_recipe(baseline, arguments.profile, overrides)
    name = f"{Path(baseline).stem}/{trainer}/{recipe.algorithm.estimator}/seed{recipe.seed}"
    _refuse(recipe, trainer, name)
    command = [python, "-m", "gem_core.cli", "train", baseline, "--trainer", trainer]
    if arguments.profile:
        command += ["--profile", arguments.profile]
    command += [word for text in overrides for word in ("--set", text)]
    command += ["--trust"] if arguments.trust else []
    # --resume also starts a run where there is none: one command for every start of the job.
    command += ["--run", str(out / name), "--resume"]
    return GridCell(out, name, recipe, tuple(command))


def _refuse(recipe: Recipe, trainer: str, name: str) -> None:
    """Refuse what would end on the node, as far as it can be known without the trainer."""
    if recipe.hardware.nodes > 1:
        raise GemError(
            f"{name} has hardware.nodes = {recipe.hardware.nodes}, and a cell is one process on "
            "one node: docs/commands_gpu.md has batch scripts for several."
        )
    try:
        resolve(get_trainer(trainer).translate)(recipe)
    except ImportError:
        return  # the trainer is installed in another environment; it says so there
    except GemError as error:
        raise type(error)(f"{name}: {error}") from error


def _refuse_twins(cells: Sequence[GridCell]) -> None:
    names = [cell.name for cell in cells]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise GemError(
            f"Two cells would have the folder {twice[0]}: name each recipe, trainer and seed once, "
            "and give files different names."
        )


def _printable(path: Path) -> Path:
    if not str(path).isprintable():
        raise GemError(f"--out {str(path)!r} has characters that are not printable: rename it.")
    return path
