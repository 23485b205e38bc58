"""Start a trainer on a recipe."""

from __future__ import annotations

from gem_core.runs import trainers
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.recipe import Recipe


def launch(name: str, recipe: Recipe, run: RunDir, *, resume: bool = False) -> None:
    """Train ``recipe`` with the trainer called ``name`` into ``run``.

    Raises:
        MissingDependencyError: the trainer cannot run here.
    """
    trainer = trainers.get_trainer(name)
    trainers.require(trainer, recipe.hardware.device)
    trainers.resolve(trainer.launch)(recipe, run, resume=resume)
