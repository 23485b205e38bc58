"""Train a recipe with TRL: in this process, or one process per GPU under ``torchrun``."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoTokenizer

from gem_adapters.cpu_threads import cpu_threads
from gem_core.errors import RecipeError, RunError
from gem_core.policies.engine.first_calls import make_first_calls
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.environments.data import belonging_to
from gem_core.runs.program import run_process
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.resolved import ResolvedRun, read_resolved
from gem_core.training.allocator import keep_freed_memory
from gem_core.training.stopping import RunStopped
from gem_core.training.tiny import model_path
from gem_trl.advantages import pool
from gem_trl.batching import processes
from gem_trl.critic import FILE
from gem_trl.metrics import RunLog
from gem_trl.nodes import command, require_meeting_place, tell_the_others, torchrun
from gem_trl.ranks import end_with_parent, leave_ranks
from gem_trl.trainer import GemTrainer

TINY_THREADS = 2
"""Threads of torch with the tiny model: a fixed number, so that sums come out the same on every
machine."""


def run(resolved: ResolvedRun, run: RunDir, *, resume: bool = False) -> None:
    """Train what is resolved into ``run``, from its last checkpoint with ``resume``.

    Raises:
        RecipeError: the hardware is not here.
        RunError: a process of a run on several GPUs failed.
        RunStopped: training ended because it was asked to.
    """
    recipe = resolved.recipe
    prepare(recipe)
    if needs_processes(recipe):
        run_processes(recipe, command(recipe, run, resume))
        return
    source = resolved.model or model_path(recipe)
    tokenizer = AutoTokenizer.from_pretrained(source, revision=recipe.model.revision)
    trainer = GemTrainer.from_recipe(
        recipe, source, tokenizer, run.checkpoints, [RunLog(run)], resolved
    )
    train(trainer, run, resume=resume)
    leave_ranks()


def train(trainer: GemTrainer, run: RunDir, *, resume: bool) -> None:
    """Train to the end, from the last checkpoint with ``resume``; write the model of ``run``."""
    checkpoint = restore(trainer, run.checkpoints) if resume else None
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_model(str(run.model))


def prepare(recipe: Recipe) -> None:
    """Refuse what cannot be trained here, before anything is loaded; set up this process.

    A CPU process gets its threads and its allocator; a rank ends with its ``torchrun``.

    Raises:
        RecipeError: the hardware is not here, or nothing says where the nodes meet.
    """
    end_with_parent()
    if needs_processes(recipe):
        require_meeting_place(recipe)
    here = "gpu" if torch.cuda.is_available() else "cpu"
    if recipe.hardware.device != here:
        raise RecipeError(
            f"hardware.device = {recipe.hardware.device!r}, but this is a {here} machine: use the "
            "profile tiny on a CPU, paper on a GPU; CUDA_VISIBLE_DEVICES='' hides a GPU."
        )
    if here == "cpu":
        keep_freed_memory()
        make_first_calls()
        tiny = recipe.model.path == "tiny"
        torch.set_num_threads(TINY_THREADS if tiny else cpu_threads(recipe))


def needs_processes(recipe: Recipe) -> bool:
    """Return whether the run needs several processes and this is not one of them."""
    return processes(recipe) > 1 and "WORLD_SIZE" not in os.environ


def start_processes(recipe: Recipe, program: str, arguments: Sequence[str]) -> None:
    """Run a script once per GPU under ``torchrun``, to its end; see `run_processes`.

    Args:
        recipe: the hardware.
        program: path of the script.
        arguments: arguments of the program.

    Raises:
        RecipeError: the run has several nodes, and nothing says where they meet.
        RunError: a process failed.
    """
    run_processes(recipe, torchrun(recipe, program, arguments, module=False))


def run_processes(recipe: Recipe, started: Sequence[str]) -> None:
    """Run ``torchrun`` to its end.

    Of a run on several machines these are the processes of this one; the command for the others is
    printed, see `gem_trl.nodes`.

    Raises:
        RunError: a process failed.
    """
    tell_the_others(recipe, started)
    code = run_process(started)
    if code:
        raise RunError(f"A training process failed (exit code {code}); its output is above.")


def restore(trainer: GemTrainer, folder: Path) -> str | None:
    """Load the critic from the newest complete checkpoint; delete unfinished ones.

    A collective call: the first rank looks and deletes, and all resume from what it chose.

    Args:
        trainer: the trainer of the run.
        folder: directory of the checkpoints.

    Returns:
        The checkpoint, for ``trainer.train(resume_from_checkpoint=...)``; ``None`` where there is
        none, and training starts at the first step.
    """
    checkpoint = None
    if trainer.rank == 0:
        complete = []
        for path in _newest_first(folder):
            if is_complete(path, trainer.world, with_critic=trainer.critic is not None):
                complete.append(str(path))
            else:
                shutil.rmtree(path)
        checkpoint = next(iter(complete), None)
    checkpoint = pool([checkpoint], trainer.world)[0]
    if checkpoint and trainer.critic is not None:
        trainer.critic.load(Path(checkpoint))
    return checkpoint


def last_checkpoint(folder: Path, world: int = 1, *, with_critic: bool = False) -> str | None:
    """Return the newest complete checkpoint in ``folder``; ``None`` where there is none."""
    checkpoints = _newest_first(folder)
    complete = (str(path) for path in checkpoints if is_complete(path, world, with_critic))
    return next(complete, None)


def _newest_first(folder: Path) -> list[Path]:
    steps = {int(path.name.rpartition("-")[2]): path for path in folder.glob("checkpoint-*")}
    return [steps[step] for step in sorted(steps, reverse=True)]


def is_complete(checkpoint: Path, world: int, with_critic: bool) -> bool:
    """Return whether everything that a run resumes from was written.

    Args:
        checkpoint: its directory.
        world: number of ranks; each writes its random state, in no order.
        with_critic: whether there must be a critic, which is written last.
    """
    try:
        json.loads((checkpoint / "trainer_state.json").read_text())  # the first rank's last file
    except (FileNotFoundError, json.JSONDecodeError):
        return False
    needed = [f"rng_state_{rank}.pth" for rank in range(world)]
    if world == 1 or (checkpoint / "rng_state.pth").exists():  # a single process wrote it
        needed = []
    needed += [FILE] if with_critic else []
    return all((checkpoint / name).exists() for name in needed)


if __name__ == "__main__":
    directory = RunDir(sys.argv[1])
    try:
        with belonging_to(directory):  # on another node, nobody has set that for this process
            run(read_resolved(directory), directory, resume="--resume" in sys.argv)
    except RunStopped as stopped:
        print(stopped)
        leave_ranks()
