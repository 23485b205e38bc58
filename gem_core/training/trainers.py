"""Trainers as the core sees them: found by entry point, checked before anything is imported.

An adapter package exposes one `Trainer` (group ``gem_core.trainers``) whose module imports
nothing of the framework. `check` tells what is missing without importing it either;
`launch` imports the adapter's launcher and runs a recipe.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from importlib.util import find_spec
from typing import Any

from gem_core.errors import MissingDependencyError, unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gem_core.training.recipe import Recipe
    from gem_core.training.runs import RunDir

GROUP = "gem_core.trainers"


@dataclass(frozen=True)
class Trainer:
    """What an adapter declares about itself and its framework.

    Attributes:
        name: as in ``--trainer``.
        distribution: the framework's distribution on the package index.
        tested: ``(lowest, below)`` versions of the tested range.
        python: ``(lowest, below)`` Python versions the framework's releases support.
        install: command that installs it for a GPU user.
        launch: ``module:function`` with the signature ``run(recipe, run_dir, *, resume=False)``.
        translate: ``module:function``, ``recipe -> native configuration`` (list of arguments or a
            dict), raising RecipeError for a key that cannot be honoured.
        modules: modules that must be importable, by the command that installs each.
    """

    name: str
    distribution: str
    tested: tuple[str, str]
    python: tuple[tuple[int, int], tuple[int, int]]
    install: str
    launch: str
    translate: str
    modules: dict[str, str] = field(default_factory=dict)

    @property
    def tested_range(self) -> str:
        """The tested range as a version specifier."""
        return f">={self.tested[0]},<{self.tested[1]}"


@dataclass(frozen=True)
class Status:
    """What `check` found."""

    trainer: Trainer
    version: str | None
    problems: tuple[str, ...]

    @property
    def ready(self) -> bool:
        """Nothing is missing."""
        return not self.problems


def list_trainers() -> dict[str, Trainer]:
    """All trainers that have an adapter installed, by name."""
    return {name: point.load() for name, point in sorted(_points().items())}


def get_trainer(name: str) -> Trainer:
    """The trainer called ``name``. Raises UnknownNameError."""
    points = _points()
    if name not in points:
        raise unknown("trainer", name, points, f"Known: {sorted(points)}.")
    trainer: Trainer = points[name].load()
    return trainer


def _points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def installed_version(distribution: str) -> str | None:
    """Version of an installed distribution, None where there is none."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def check(trainer: Trainer) -> Status:
    """Tell whether ``trainer`` can run here, and what to do if not; imports nothing of it."""
    problems = []
    low, below = trainer.python
    if not low <= sys.version_info[:2] < below:
        problems.append(
            f"needs Python >={low[0]}.{low[1]},<{below[0]}.{below[1]}; this is "
            f"{sys.version_info[0]}.{sys.version_info[1]}: make an environment with another one, "
            f"`python{low[0]}.{low[1]} -m venv {trainer.name}`, and in it {trainer.install}"
        )
    found = installed_version(trainer.distribution)
    if found is None:
        problems.append(f"{trainer.distribution} is not installed: {trainer.install}")
    elif not _within(found, trainer.tested):
        problems.append(
            f"{trainer.distribution} {found} is outside the tested range {trainer.tested_range}: "
            f"{trainer.install}"
        )
    else:
        problems += [
            f"module {module} is missing: {command}"
            for module, command in trainer.modules.items()
            if find_spec(module) is None
        ]
    return Status(trainer, found, tuple(problems))


def require(trainer: Trainer) -> None:
    """Raise MissingDependencyError unless ``trainer`` can run here."""
    status = check(trainer)
    if not status.ready:
        raise MissingDependencyError(
            f"Trainer {trainer.name!r} cannot run here: " + "; ".join(status.problems) + ". "
            "`gem-core doctor` shows every trainer."
        )


def resolve(path: str) -> Callable[..., Any]:
    """Import ``module:attribute``."""
    module, _, attribute = path.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), attribute)
    return found


def launch(name: str, recipe: Recipe, run: RunDir, *, resume: bool = False) -> None:
    """Train ``recipe`` with the trainer called ``name`` into ``run``."""
    trainer = get_trainer(name)
    require(trainer)
    resolve(trainer.launch)(recipe, run, resume=resume)


def _within(found: str, bounds: tuple[str, str]) -> bool:
    return _numbers(bounds[0]) <= _numbers(found) < _numbers(bounds[1])


def _numbers(text: str) -> tuple[int, ...]:
    """Leading numeric parts of a version; enough for bounds that are plain releases."""
    parts: list[int] = []
    for part in text.split("+")[0].split("."):
        digits = "".join(ch for ch in part if ch.isdigit())
        if not digits:
            break
        parts.append(int(digits))
        if digits != part:
            break
    return tuple(parts + [0] * (4 - len(parts)))
