"""Starts Oat: its own program of processes, or all in this one on a CPU."""

from __future__ import annotations

import sys
from typing import Any

from gem_core.errors import GemError
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.resolved import ResolvedRun
from gem_core.training.tiny import model_source
from gem_oat import _compat, config, nodes
from gem_oat.values import real_parts


def run(resolved: ResolvedRun, run: RunDir, *, resume: bool = False) -> None:
    """Train what is resolved into ``run`` with Oat.

    Args:
        resolved: the recipe and Oat's arguments; ``hardware.device = "cpu"`` runs Oat's loop in
            this process, with stand-ins for vLLM and launchpad, unless
            `gem_oat.values.REAL_VARIABLE` is set.
        run: where metrics, episodes, checkpoints and the model go.
        resume: continue after the newest checkpoint, if there is one.

    Raises:
        MissingDependencyError: wrong Python, or a part of Oat's GPU stack is missing.
        RecipeError: Oat does not take a value.
        GemError: Oat ended without a trained model.
    """
    recipe = resolved.recipe
    start = last_checkpoint(run) if resume else 0
    if start == recipe.train.steps:
        return  # the model was written before this checkpoint
    on_cpu = recipe.hardware.device == "cpu"
    if on_cpu and not real_parts():
        from gem_oat.cpu import in_process

        in_process.launch(arguments(recipe, run, start, resolved.model))
    else:
        _compat.require_parts(real_parts()) if on_cpu else _compat.require_gpu_stack()
        nodes.run_watched(command(recipe, run, resume))
    require_model(recipe, run)


def command(recipe: Recipe, run: RunDir, resume: bool) -> list[str]:
    """Return the program that `run` starts; ``[]``: its loop runs in this process."""
    if recipe.hardware.device == "cpu" and not real_parts():
        return []
    start = last_checkpoint(run) if resume else 0
    return [sys.executable, "-m", "gem_oat.program", str(run.path), str(start)]


def arguments(recipe: Recipe, run: RunDir, start: int = 0, model: str | None = None) -> Any:
    """Oat's arguments with what the adapter's actors and learners read (``args.gem``).

    Args:
        recipe: the experiment.
        run: the run directory.
        start: training steps behind the checkpoint to resume from.
        model: what training starts from, where it is known.

    Raises:
        RecipeError: as `gem_oat.config.arguments`.
    """
    from gem_oat.learner import GemRun

    args = config.arguments(recipe)
    source = model_source(recipe, model)
    args.pretrain = source
    args.ref_pretrain = source
    args.critic_pretrain = source
    args.save_path = str(run.path / "oat")
    args.gem = GemRun(recipe, run, start)
    return args


def last_checkpoint(run: RunDir) -> int:
    """Training steps behind the newest whole checkpoint, 0 where there is none."""
    latest = run.checkpoints / "policy" / "latest"
    return int(latest.read_text().removeprefix("step_")) if latest.exists() else 0


def launch_program(args: Any) -> None:
    """Run Oat's nodes to their end: a process per actor and learner, and its shared memory.

    Raises:
        RuntimeError: a node failed.
    """
    from oat.interface import get_program

    learner, actor = node_classes(args.gem.recipe)
    program, resources = get_program(args, learner_cls=learner, actor_cls=actor)
    nodes.run_nodes(program, resources, args.launch_type)


def node_classes(recipe: Recipe) -> tuple[type, type]:
    """Return the classes of the learner's and the actor's process."""
    if recipe.hardware.device == "cpu":
        from gem_oat.cpu import processes

        return processes.CpuLearner, processes.CpuActor
    from gem_oat.learner import GemLearner
    from gem_oat.rollout import GemActor

    return GemLearner, GemActor


def require_model(recipe: Recipe, run: RunDir) -> None:
    """Raise GemError unless Oat left a model: its processes can end without an exception here."""
    if not run.model.exists():
        raise GemError(
            f"Oat ended before step {recipe.train.steps}; its output above says why. Continue with "
            "--resume."
        )
