"""Starts ``python -m verl.trainer.main_ppo`` on a recipe and keeps the model that it leaves."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gem_adapters.hydra import override
from gem_adapters.ray_cluster import require_cluster
from gem_core.env.registration.references import passed_on
from gem_core.runs.directory.run_dir import RUN_VARIABLE, RunDir
from gem_core.runs.program import run_program
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.resolved import ResolvedRun
from gem_core.runs.trainers import require
from gem_core.training.tiny import model_source
from gem_verl import TRAINER
from gem_verl.config import payload

NATIVE = "..."
"""Stands for the native settings in `command`."""
RAY_VARIABLES = "+ray_kwargs.ray_init.runtime_env.env_vars"
RAY_RUN = f"{RAY_VARIABLES}.{RUN_VARIABLE}"
"""The run directory for all processes of Ray, also of a cluster that was started before."""


def run(resolved: ResolvedRun, run: RunDir, *, resume: bool = False) -> None:
    """Train what is resolved into ``run``; verl's own output goes to ``verl.log`` there.

    Args:
        resolved: the recipe and verl's overrides.
        run: its run directory.
        resume: continue from verl's latest checkpoint, or from step 1 where there is none.

    Raises:
        MissingDependencyError: verl is missing, or outside the tested range.
        GemError: verl ended with an error.
        RunError: verl left no model.
    """
    require(TRAINER)
    recipe, arguments = resolved.recipe, [*resolved.native]
    with session(recipe) as (settings, environment):
        settings = {**settings, **run_settings(recipe, run, resume, resolved.model)}
        arguments += [override(key, value) for key, value in settings.items()]
        started = [word for word in command(recipe, run, resume) if word != NATIVE]
        run_program("verl", [*started, *arguments], environment, run.path / "verl.log")
    run.keep_model(last_model(recipe, run))


def command(recipe: Recipe, run: RunDir, resume: bool) -> list[str]:
    """Return the program that `run` starts, see `gem_core.runs.trainers.Trainer`."""
    return [sys.executable, "-m", "verl.trainer.main_ppo", NATIVE]


@contextmanager
def session(recipe: Recipe) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """Prepare this machine for verl's process.

    Yields:
        Native settings and environment variables.

    Raises:
        RecipeError: nothing says where the Ray cluster of several nodes is.
    """
    require_cluster(recipe)  # a script comes here without `run_experiment`
    if recipe.hardware.device == "cpu":
        from gem_verl.cpu import harness

        with harness.session(recipe) as needed:
            yield needed
    else:
        yield {}, dict(os.environ)


def run_settings(
    recipe: Recipe, run: RunDir, resume: bool = False, model: str | None = None
) -> dict[str, Any]:
    """Return the native keys and values of what belongs to a run rather than to the recipe.

    Args:
        recipe: the experiment.
        run: its run directory.
        resume: continue from verl's latest checkpoint.
        model: what training starts from, where it is known.
    """
    source = model_source(recipe, model)
    return {
        "actor_rollout_ref.model.path": source,
        "critic.model.path": source,
        "+data.gem_recipe": payload(recipe),
        "+data.gem_run": str(run.path.resolve()),
        RAY_RUN: str(run.path.resolve()),
        **{f"{RAY_VARIABLES}.{name}": value for name, value in passed_on().items()},
        "trainer.default_local_dir": str(run.checkpoints.resolve()),
        "trainer.resume_mode": "auto" if resume else "disable",
    }


def last_model(recipe: Recipe, run: RunDir) -> Path:
    """Return the folder in which verl saves the model of the last step."""
    return run.checkpoints / f"global_step_{recipe.train.steps}" / "actor" / "huggingface"
