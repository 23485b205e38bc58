"""``gem-core check``: whether an environment behaves as trainers need it to."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from gem_core.cli.output import progress_lines, wants_tracebacks
from gem_core.env.checker import CHECKS, EnvCheckError, check_env
from gem_core.env.interface import Env
from gem_core.env.registration import check_kwargs, list_envs, make, spec
from gem_core.env.registration.own_class import importing, missing_module
from gem_core.env.registration.references import CodeReferenceError, TrustError
from gem_core.errors import GemError, UnknownNameError, unknown


def check(arguments: argparse.Namespace) -> int:
    """Run the checks on an environment; print each, and return 1 if one fails."""
    kwargs = _parameters(arguments.parameters)
    for name in arguments.skip:
        if name not in CHECKS:
            raise unknown("check", name, CHECKS, f"There are: {', '.join(CHECKS)}.")
    factory = _factory(arguments.env, kwargs)
    tell = progress_lines()
    try:
        check_env(
            factory,
            seeds=range(arguments.seeds),
            steps=arguments.steps,
            skip=arguments.skip,
            passed=lambda name: tell(f"passed   {name}: {_says(name)}"),
            noted=lambda text: tell(f"note     {text}"),
        )
    except EnvCheckError as failure:
        if wants_tracebacks() and failure.__cause__ is not None:
            raise
        print(f"FAILED   {failure.check}: {_says(failure.check)}\n{failure}")
        return 1
    for name in arguments.skip:
        tell(f"skipped  {name}")
    passed = len(CHECKS) - len(set(arguments.skip))
    print(f"{arguments.env}: all {passed} checks passed.")
    return 0


def _says(name: str) -> str:
    """Return the sentence of a check's docstring."""
    return (CHECKS[name].__doc__ or "").strip().partition("\n")[0].replace("`", "")


def _parameters(text: str) -> dict[str, Any]:
    try:
        kwargs = json.loads(text)
    except ValueError as error:
        raise GemError(f"--parameters is not JSON: {error}") from None
    if not isinstance(kwargs, dict):
        raise GemError('--parameters must be a JSON object, such as {"max_turns": 4}.')
    return kwargs


def _factory(name: str, kwargs: dict[str, Any]) -> Callable[[], Env]:
    """Return what makes the environments of an id, or of ``module:Class``; it can be pickled.

    The user types the name of the class, so that its module may be imported.
    """
    try:
        known = spec(name)
    except (UnknownNameError, TrustError, CodeReferenceError) as not_registered:
        module, _, attribute = name.partition(":")
        if not is_module(module):
            known_ids = list_envs()
            listing = "`gem-core list` lists all ids; a class is named module:Class."
            listing = missing_module(name, known_ids) + listing
            raise unknown("environment", name, known_ids, listing) from not_registered
    else:
        check_kwargs(name, kwargs)
        return partial(make, known.id, **kwargs)
    with importing(name):
        made = getattr(import_module(module), attribute, None)
    if not callable(made):
        raise GemError(f"Module {module!r} has no class {attribute!r}: write module:Class.")
    check_kwargs(name, kwargs, made)
    return partial(made, **kwargs)


def is_module(name: str) -> bool:
    """Return whether a module of this name can be found, also in this directory."""
    from importlib.util import find_spec

    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False
