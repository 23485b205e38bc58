"""What a run would be, before anything is written or started."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gem_core.errors import DataError, GemError, MissingDependencyError
from gem_core.policies.models.source import require_folder
from gem_core.policies.models.weights import TINY, require_complete
from gem_core.results.data import data_lines
from gem_core.runs.directory.run_dir import IfExists, RunDir
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.resolved import resolve_run, shown
from gem_core.runs.tracking import require_trackers
from gem_core.runs.trainers import Trainer, check, get_trainer, require, resolve
from gem_core.training.device import require_device
from gem_core.training.eval_engine import require_engine


@dataclass
class Preview:
    """A run that is not begun.

    Attributes:
        recipe: the experiment.
        trainer: the declaration of its trainer.
        run: its run directory, which may not exist.
        if_exists: what to do with one that holds a run.
        native: the native settings without secrets; ``None`` where they cannot be made here.
        command: the program that would be started; empty = it trains in the process of gem-core;
            ``None`` where it cannot be told here.
        environments: a line on each environment; empty where they cannot be made here.
        problems: what keeps it from starting on this machine; empty = it could start.
    """

    recipe: Recipe
    trainer: Trainer
    run: RunDir
    if_exists: IfExists
    native: Any = None
    command: Sequence[str] | None = None
    environments: Sequence[str] = ()
    problems: list[str] = field(default_factory=list)

    @contextmanager
    def noting(self, *errors: type[GemError]) -> Iterator[None]:
        """Inside the block these errors are problems of this machine, and end the block only."""
        try:
            yield
        except errors as error:
            self.problems.append(str(error))


def preview(recipe: Recipe, name: str, path: Path, if_exists: IfExists) -> Preview:
    """Check what can be checked without starting; make each environment once, as a run does.

    A model of the Hub is not looked at, nor whether another process has the run, nor the memory of
    the GPUs.

    Raises:
        RecipeError: the trainer or an environment refuses the recipe.
        RunError: the run directory cannot be used.
        UnknownNameError: there is no such trainer.
    """
    found = Preview(recipe, get_trainer(name), RunDir(path), if_exists)
    native: Any = ()
    try:
        native = resolve(found.trainer.translate)(recipe)
        found.native = shown(native)
    except MissingDependencyError as error:
        if check(found.trainer).ready:  # otherwise `require` says what is missing
            found.problems.append(str(error))
    found.run.require_usable(recipe, name, if_exists)
    resumed = found.run if found.run.exists and if_exists == "resume" else None
    trained = resumed is not None and resumed.trained
    if recipe.hardware.nodes > 1 and found.trainer.check_nodes and not trained:
        resolve(found.trainer.check_nodes)(recipe)
    if recipe.model.path != TINY:
        require_folder(recipe.model.path)
    _check_machine(found)
    with found.noting(DataError, MissingDependencyError):
        resolved = resolve_run(recipe, name, resumed, native=native)
        found.environments = data_lines(resolved.environments)
    if not found.trainer.command:
        found.command = ()
    elif check(found.trainer).version is not None:
        found.command = resolve(found.trainer.command)(recipe, found.run, resumed is not None)
    return found


def _check_machine(found: Preview) -> None:
    """Make the checks that a run makes before it begins, every one of them."""
    recipe, name = found.recipe, found.trainer.name
    checks: list[Callable[[], None]] = [
        lambda: require(found.trainer, recipe.hardware.device),
        lambda: require_trackers(recipe.track.to),
        lambda: require_engine(recipe, name),
    ]
    if check(found.trainer).ready:  # these use packages that come with it
        checks.append(lambda: require_device(recipe, name))
        if Path(recipe.model.path).is_dir():
            checks.append(lambda: require_complete(recipe))
    for one in checks:
        with found.noting(GemError):
            one()
