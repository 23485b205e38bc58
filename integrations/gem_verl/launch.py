"""Start ``python -m verl.trainer.main_ppo`` on a recipe and bring its model home."""

from __future__ import annotations

import sys

from gem_core.adapters.hydra import override
from gem_core.adapters.program import run_program
from gem_core.tiny import model_path
from gem_core.training.recipe import Recipe
from gem_core.training.runs import RunDir
from gem_core.training.trainers import require
from gem_verl import TRAINER
from gem_verl.config import payload, translate
from gem_verl.cpu import harness


def run(recipe: Recipe, run: RunDir, *, resume: bool = False) -> None:
    """Train ``recipe`` into ``run``; verl's own output goes to ``verl.log`` there.

    With ``resume`` verl continues at its latest checkpoint, or at step 1 where there is none.

    Raises:
        MissingDependencyError: verl is missing, or outside the tested range.
        RecipeError: verl cannot honour a key.
        GemError: verl ended with an error, or without a model.
    """
    require(TRAINER)
    arguments = translate(recipe)
    with harness.session(recipe) as (native, environment):
        native |= {
            "actor_rollout_ref.model.path": model_path(recipe),
            "critic.model.path": model_path(recipe),
            "+data.gem_recipe": payload(recipe),
            "+data.gem_run": str(run.path.resolve()),
            "trainer.default_local_dir": str(run.checkpoints.resolve()),
            "trainer.resume_mode": "auto" if resume else "disable",
        }
        arguments += [override(key, value) for key, value in native.items()]
        command = [sys.executable, "-m", "verl.trainer.main_ppo", *arguments]
        run_program("verl", command, environment, run.path / "verl.log")
    run.keep_model(run.checkpoints / f"global_step_{recipe.train.steps}" / "actor" / "huggingface")
