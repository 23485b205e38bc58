"""The checks of a run on GPUs: its packages, its machine, the memory and disk of its recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from gem_core.errors import RecipeError
from gem_core.runs.install import Stack, normal
from gem_core.runs.recipe.files import flatten
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.trainers import Trainer
from gem_preflight.estimate import estimate
from gem_preflight.readiness import hardware, software
from gem_preflight.readiness.facts import (
    GB,
    Ask,
    Gpu,
    Machine,
    Probe,
    Problem,
    Torch,
)
from gem_preflight.shapes import model_shape


def packages(
    known: Stack, probe: Probe, machine: Machine, torch: Torch | None, ask: Ask, launch: str
) -> list[Problem]:
    """Check versions and builds, and only where these are right import everything.

    Args:
        known: what the trainer needs.
        probe: looks at the environment.
        machine: the machine.
        torch: its torch; ``None`` = not installed.
        ask: what the run is to be.
        launch: module of the adapter that starts a run.
    """
    engine = ask.recipe.hardware.engine if ask.recipe else "default"
    if engine in known.engines:
        return [Problem(known.engines[engine])]
    if engine == "hf":
        known = _without(known, known.engine)
    problems = hardware.torch_build(machine, torch, known)
    problems += software.wrong_versions(known, probe, torch)
    problems += software.missing_engine(known, probe) if engine != "hf" else []
    problems += software.other_build(known, probe, torch)
    if problems or torch is None or torch.cuda is None:
        return problems
    return software.failed_imports(
        (*known.imports, launch), probe, partial(software.import_line, stack=known)
    )


def needed(known: Stack, native: Mapping[str, Any]) -> Stack:
    """Return ``known`` as a run with these native keys needs it.

    Args:
        known: what the trainer needs.
        native: the recipe's native keys of the trainer; one may choose an attention with which
            flash-attn is not needed.
    """
    chosen = {key.lstrip("+"): value for key, value in flatten(native).items()}
    if "flash" in str(chosen.get(known.attention, "flash")):
        return known
    return msgspec.structs.replace(_without(known, software.FLASH), flash_attn=False)


def _without(known: Stack, distribution: str) -> Stack:
    """Return ``known`` without what a distribution is watched and imported for."""
    keep = tuple(
        path
        for path in known.imports
        if normal(path.partition(":")[0].partition(".")[0]) != distribution
    )
    watched = tuple(name for name in known.watched if name != distribution)
    return msgspec.structs.replace(known, imports=keep, watched=watched)


def machine_of(
    trainer: Trainer,
    known: Stack | None,
    machine: Machine,
    torch: Torch | None,
    ask: Ask,
    builds: bool,
) -> tuple[list[Problem], list[str]]:
    """Check GPUs, compiler, shared memory, disk and the recipe's memory.

    Args:
        trainer: the trainer.
        known: what it needs; ``None`` = not known, or its packages are not here.
        machine: the machine.
        torch: its torch; ``None`` = not installed, or its packages are not here.
        ask: what the run is to be.
        builds: whether flash-attn must still be built.
    """
    problems = hardware.gpus_here(machine, torch)
    notes: list[str] = []
    gpus = torch.gpus if torch and torch.gpus else machine.gpus
    wanted = ask.recipe.hardware.gpus_per_node if ask.recipe else 1
    if 0 < len(gpus) < wanted:
        problems.append(
            Problem(
                f"the recipe wants {wanted} GPUs and {len(gpus)} are present",
                f"--set hardware.gpus_per_node={len(gpus)}",
            )
        )
    if known is not None:
        problems += hardware.gpu_models(torch, known)
        problems += hardware.compiler(machine, torch, known, builds)
        missing, notes = hardware.shared_memory(machine, wanted, known)
        problems += missing
    needed = hardware.GPU_DISK_GB
    if ask.recipe is None:
        notes = [*notes, "Memory was not checked: give --recipe."]
    else:
        memory, told, needed = _plan(ask.recipe, trainer, _gigabytes(ask, gpus))
        problems += memory
        notes = [*notes, *told]
        if ask.recipe.hardware.nodes > 1:
            notes.append(f"Only this one of {ask.recipe.hardware.nodes} machines was looked at.")
    return [*problems, *hardware.disk(machine, needed)], notes


def _gigabytes(ask: Ask, gpus: Sequence[Gpu]) -> float | None:
    if ask.gigabytes is not None:
        return ask.gigabytes
    return min((gpu.bytes for gpu in gpus), default=0) / GB or None


def _plan(
    recipe: Recipe, trainer: Trainer, gigabytes: float | None
) -> tuple[list[Problem], list[str], float]:
    """Return what does not fit into the memory, notes, and the disk of the checkpoints (GB)."""
    if gigabytes is None:
        return [], ["Memory was not checked: give --gpus."], hardware.GPU_DISK_GB
    try:
        plan = estimate(recipe, trainer.name, gigabytes)
    except RecipeError as error:
        return [], [f"Memory was not checked: {error}"], hardware.GPU_DISK_GB
    return [Problem(text) for text in plan.problems], [], _checkpoints_gb(recipe, trainer)


def _checkpoints_gb(recipe: Recipe, trainer: Trainer) -> float:
    """Return the disk of the checkpoints that are kept, the one being written and the export."""
    how = trainer.memory
    assert how is not None  # `estimate` has refused a trainer without one
    trained = 0 if recipe.model.lora.rank else how.optimizer
    states = how.weights + trained
    kept = recipe.train.keep_checkpoints + 1
    return model_shape(recipe.model).parameters * (states * kept + how.weights) / GB
