"""What stands for an argument: names of gem-core, keys of recipes, files and folders."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path

from gem_core.advantages import list_estimators
from gem_core.env.registration import list_envs
from gem_core.runs.recipe.files import shipped
from gem_core.runs.recipe.recipe import EnvConfig, recipe_keys
from gem_core.runs.trainers import trainer_names

_OF_METAVAR = {
    "ENV": "environments",
    "BASELINE": "baselines",
    "FILE": "files",
    "RUN": "folders",
    "DIR": "folders",
    "FOLDER": "folders",
}
"""Each part of a metavar such as ``RUN|BASELINE|FILE``."""
_OF_ARGUMENT = {
    "algorithms": ("estimators",),
    "baselines": ("baselines", "files"),
    "environments": ("environments",),
    "overrides": ("keys",),
    "profile": ("profiles", "files"),
    "trainer": ("trainers",),
    "trainers": ("trainers",),
}
"""Arguments whose metavar says less; the subcommands use these names alike."""


def kinds_of(action: argparse.Action) -> tuple[str, ...]:
    """Return the kinds of what may stand for an argument; none where nothing is known of it.

    >>> kinds_of(argparse.Action([], "sources", metavar="RUN|BASELINE"))
    ('folders', 'baselines')
    """
    if action.choices is not None or action.nargs == 0:
        return ()
    if action.dest in _OF_ARGUMENT:
        return _OF_ARGUMENT[action.dest]
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    kinds = [_OF_METAVAR[part] for part in metavar.split("|") if part in _OF_METAVAR]
    if not kinds and action.type is Path:
        return ("files",)
    return tuple(kinds)


def _keys() -> Iterable[str]:
    """Return what may stand after ``--set``: every key with its sign, and known values."""
    lists = ("env", "eval.env")
    keys = [key for key in recipe_keys() if key not in (*lists, "sources")]
    for name in lists:
        keys += recipe_keys(EnvConfig, f"{name}.0.")
    estimators = [f"algorithm.estimator={name}" for name in list_estimators()]
    return [*(f"{key}=" for key in keys), *estimators]


NAMES: dict[str, Callable[[], Iterable[str]]] = {
    "baselines": lambda: shipped("baselines"),
    "environments": list_envs,
    "estimators": list_estimators,
    "keys": _keys,
    "profiles": lambda: shipped("profiles"),
    "trainers": trainer_names,
}
"""Kind -> its names. Files and folders are completed by the shell itself."""
