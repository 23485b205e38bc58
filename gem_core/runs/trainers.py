"""Find trainers by entry point, and check them before anything of theirs is imported.

An adapter package exposes one `Trainer` (entry-point group ``gem_core.trainers``), whose module
imports nothing of the framework. `check` reports what is missing, also without importing it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.metadata import EntryPoint, PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

from gem_core.env.registration.entry_points import list_entry_points
from gem_core.errors import MissingDependencyError, no_exit, python_needed, unknown
from gem_core.runs.checkout import cpu_line
from gem_core.runs.memory_layout import MemoryLayout

GROUP = "gem_core.trainers"


@dataclass(frozen=True)
class Trainer:
    """The declaration of an adapter and its framework.

    Attributes:
        name: the name in ``--trainer``.
        distribution: the framework's distribution on the package index.
        tested: ``(lowest, below)`` versions of the tested range.
        python: ``(lowest, below)`` Python versions that the framework's releases support.
        install: the command that installs it for training on GPUs.
        launch: ``module:function`` with the signature ``run(resolved, run_dir, *, resume=False)``,
            see `gem_core.runs.resolved.ResolvedRun`.
        translate: ``module:function``, ``recipe -> native configuration`` (list of arguments or a
            dict), raising RecipeError for a key that cannot be honoured.
        check_nodes: ``module:function``, ``recipe -> None``, called before anything is done for a
            run on several nodes; it raises RecipeError where that cannot be started.
        command: ``module:function``, ``(recipe, run_dir, resume) -> list[str]``: the program that
            ``launch`` starts, ``...`` where the native settings stand; ``[]``, or no function: it
            trains in the process of gem-core. Nothing is written or started for it.
        modules: module that must be importable -> the command that installs it.
        memory: how it holds a model on its GPUs, for ``gem-core plan``; ``None`` = not known.
        shared_imports: modules that a comparison on a CPU imports once for all of this trainer's
            cells, see `gem_compare.prepared`; only for a trainer that runs in the
            process that launches it, and whose modules start no threads.
        eval_engines: engines that may play evaluations in its environment -> ``module:function``,
            ``(recipe, model_dir, number)`` -> a context of `MachineFactory` and policy; the name is
            also that of the module which must be installed. The first is its default on a GPU.
    """

    name: str
    distribution: str
    tested: tuple[str, str]
    python: tuple[tuple[int, int], tuple[int, int]]
    install: str
    launch: str
    translate: str
    check_nodes: str = ""
    command: str = ""
    modules: dict[str, str] = field(default_factory=dict)
    memory: MemoryLayout | None = None
    shared_imports: tuple[str, ...] = ()
    eval_engines: dict[str, str] = field(default_factory=dict)

    @property
    def tested_range(self) -> str:
        """The tested range as a version specifier."""
        return f">={self.tested[0]},<{self.tested[1]}"


@dataclass(frozen=True)
class Status:
    """The result of `check`.

    Attributes:
        trainer: the trainer.
        version: the installed version of its distribution, ``None`` where there is none.
        problems: what is missing and how to install it; empty if the trainer can run here.
    """

    trainer: Trainer
    version: str | None
    problems: tuple[str, ...]

    @property
    def ready(self) -> bool:
        """Whether the trainer can run here."""
        return not self.problems


def list_trainers() -> dict[str, Trainer]:
    """Return all trainers whose adapter is installed, by name."""
    return {name: _load(point) for name, point in sorted(_points().items())}


def trainer_names() -> list[str]:
    """Return the sorted names of all trainers whose adapter is installed; none is imported."""
    return sorted(_points())


def get_trainer(name: str) -> Trainer:
    """Return the trainer called ``name``.

    Raises:
        UnknownNameError: there is no such trainer.
    """
    points = _points()
    if name not in points:
        raise unknown("trainer", name, points, f"Known: {sorted(points)}.")
    return _load(points[name])


def _load(point: EntryPoint) -> Trainer:
    with no_exit(f"The trainer {point.name!r} ({point.value}) cannot be imported"):
        trainer: Trainer = point.load()
    return trainer


def _points() -> dict[str, EntryPoint]:
    return {point.name: point for point in list_entry_points(GROUP)}


def installed_version(distribution: str) -> str | None:
    """Return the version of an installed distribution, ``None`` if it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def check(
    trainer: Trainer,
    *,
    python: tuple[int, int] | None = None,
    version_of: Callable[[str], str | None] | None = None,
    has_module: Callable[[str], bool] | None = None,
) -> Status:
    """Check whether ``trainer`` can run here, without importing anything of it.

    The other arguments answer for another machine: its Python, the version of an installed
    distribution, and whether a module can be found.
    """
    problems = []
    here = python or sys.version_info[:2]
    low, below = trainer.python
    if not low <= here < below:
        problems.append(
            f"needs Python >={low[0]}.{low[1]},<{below[0]}.{below[1]}; this is "
            f"{here[0]}.{here[1]}: make an environment with another one, "
            f"`python{low[0]}.{low[1]} -m venv {trainer.name}`, then in it {trainer.install}"
        )
    installed = (version_of or installed_version)(trainer.distribution)
    if installed is None and problems:
        pass  # what is to be installed is said with the Python
    elif installed is None:
        needed = python_needed(trainer.name, here)
        nothing = f"gem-core[{trainer.name}] installs nothing on Python {here[0]}.{here[1]}"
        why = "" if needed is None else f", and {nothing} (it needs {needed})"
        problems.append(f"{trainer.distribution} is not installed{why}: {trainer.install}")
    elif not _within(installed, trainer.tested):
        problems.append(
            f"{trainer.distribution} {installed} is outside the tested range "
            f"{trainer.tested_range}: {trainer.install}"
        )
    else:
        present = has_module or _has_module
        problems += [
            f"module {module} is missing: {command}"
            for module, command in trainer.modules.items()
            if not present(module)
        ]
    return Status(trainer, installed, tuple(problems))


def _has_module(name: str) -> bool:
    return find_spec(name) is not None


def require(trainer: Trainer, device: str = "gpu") -> None:
    """Check that ``trainer`` can run here; the solutions are for ``device``, ``cpu`` or ``gpu``.

    Raises:
        MissingDependencyError: it cannot; the message has every problem and its solution.
    """
    if device == "cpu":
        trainer = replace(trainer, install=cpu_line(trainer.name, trainer.install))
    status = check(trainer)
    if not status.ready:
        raise MissingDependencyError(
            f"Trainer {trainer.name!r} cannot run here: " + "; ".join(status.problems) + ". "
            "`gem-core doctor` checks every trainer."
        )


def resolve(path: str) -> Callable[..., Any]:
    """Return the function ``module:attribute``."""
    module, _, attribute = path.partition(":")
    function: Callable[..., Any] = getattr(import_module(module), attribute)
    return function


def _within(release: str, bounds: tuple[str, str]) -> bool:
    return _numbers(bounds[0]) <= _numbers(release) < _numbers(bounds[1])


def _numbers(text: str) -> tuple[int, ...]:
    """Return the leading numeric parts of a version, which suffice for bounds that are releases."""
    parts: list[int] = []
    for part in text.split("+")[0].split("."):
        digits = "".join(ch for ch in part if ch.isdigit())
        if not digits:
            break
        parts.append(int(digits))
        if digits != part:
            break
    return tuple(parts + [0] * (4 - len(parts)))
