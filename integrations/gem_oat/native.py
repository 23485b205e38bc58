"""Oat's own arguments, read from its source without importing it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from gem_core.errors import GemError, MissingDependencyError
from gem_oat import TRAINER

_SOURCES = {"OATArgs": "args.py", "PPOArgs": "algorithms/ppo.py"}
"""Dataclass -> file of Oat that has it; the second class inherits from the first."""


@cache
def argument_names() -> frozenset[str]:
    """Return the names of the fields of ``PPOArgs``; takes milliseconds, and no import of Oat.

    Raises:
        MissingDependencyError: Oat is not installed.
        GemError: its sources have no such class.
    """
    spec = find_spec("oat")
    if spec is None or not spec.submodule_search_locations:
        raise MissingDependencyError(f"Oat is not installed: {TRAINER.install}.")
    folder = Path(spec.submodule_search_locations[0])
    names: list[str] = []
    for name, file in _SOURCES.items():
        names += _fields(folder / file, name)
    return frozenset(names)


def _fields(path: Path, name: str) -> Iterator[str]:
    """Yield the annotated names of a class."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            for statement in node.body:
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    yield statement.target.id
            return
    raise GemError(
        f"Oat has no {name} in {path.name}; install a tested version, "
        f"{TRAINER.distribution}{TRAINER.tested_range}."
    )
