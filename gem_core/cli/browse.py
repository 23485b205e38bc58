"""``gem-core list``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

from gem_core.cli.output import print_json
from gem_core.env.registration import list_envs
from gem_core.errors import GemError, did_you_mean


def list_names(arguments: argparse.Namespace) -> int:
    """Print the names of one kind, one per line.

    As JSON: ``{"kind": ..., "names": [...]}``.
    """
    if arguments.kind == "environments":
        names: Iterable[str] = list_envs(arguments.pattern)
    else:
        names = (n for n in _NAMES[arguments.kind]() if _matches(n, arguments.pattern))
    found = list(names)
    if arguments.pattern and not found:
        raise _no_match(arguments.kind, arguments.pattern)
    if arguments.json:
        print_json(arguments, {"kind": arguments.kind, "names": found})
        return 0
    for name in found:
        print(name)
    return 0


def _no_match(kind: str, pattern: str) -> GemError:
    every = list_envs() if kind == "environments" else _NAMES[kind]()
    option = "" if kind == "environments" else f" --kind {kind}"
    hint = did_you_mean(pattern.strip("*?"), every)
    return GemError(f"None of the {kind} match {pattern!r}.{hint} `gem-core list{option}` has all.")


def _matches(name: str, pattern: str | None) -> bool:
    glob = (pattern or "*").lower()
    if not any(sign in glob for sign in "*?["):
        glob = f"*{glob}*"
    return fnmatchcase(name.lower(), glob)


def _recipes(kind: str) -> Callable[[], Iterable[str]]:
    def names() -> Iterable[str]:
        from gem_core.runs.recipe.files import shipped

        return sorted(shipped(kind))

    return names


def _suite() -> Iterable[str]:
    from gem_core.runs.recipe.suite import load_suite

    return [baseline.name for baseline in load_suite()]


def _trainers() -> Iterable[str]:
    from gem_core.runs.trainers import list_trainers

    return list_trainers()


def _estimators() -> Iterable[str]:
    from gem_core.advantages import list_estimators

    return list_estimators()


def _templates() -> Iterable[str]:
    from gem_core.episodes.templates import NAMES

    return NAMES


_NAMES: dict[str, Callable[[], Iterable[str]]] = {
    "baselines": _recipes("baselines"),
    "profiles": _recipes("profiles"),
    "suite": _suite,
    "trainers": _trainers,
    "estimators": _estimators,
    "templates": _templates,
}
