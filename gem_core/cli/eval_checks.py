"""Options of ``gem-core eval`` that would have no effect beside the others."""

from __future__ import annotations

import argparse
from typing import Any

from gem_core.cli.eval_options import add_eval_options
from gem_core.errors import GemError

_PRINTED = {"json", "markdown"}
_READ = {
    "compare": {"compare", *_PRINTED},
    "table": {"table", "markdown"},
    "rescore": {"rescore", "out", "resume", "overwrite", *_PRINTED},
}
"""What is done instead of an evaluation -> the options that it reads."""
_NEEDS = {
    "--base-url": (
        "api api_key_env system body tokens_key send_seeds native_tools timeout attempts "
        "requests_per_minute prices item_tokens"
    ),
    "--resume": "retry_errors",
}
"""An option -> those that go with it alone."""


def refuse_idle_options(arguments: argparse.Namespace) -> None:
    """Refuse options that are given and would do nothing.

    Raises:
        GemError: the first of them, and what it goes with.
    """
    given = _find_given(arguments)
    for mode, read in _READ.items():
        if mode in given and given - read:
            raise _idle(min(given - read), f"an evaluation, not with --{mode}")
    for needed, names in _NEEDS.items():
        if _name(needed) not in given:
            for name in names.split():
                if name in given:
                    raise _idle(name, needed)
    if "player" in given and "base_url" in given:
        raise _idle("base_url", "--model; --player plays without a model")
    if arguments.api == "completions" and "system" in given:
        raise _idle("system", "--api chat")
    if given >= _PRINTED:
        raise _idle("markdown", "tables, and --json prints none")


def _find_given(arguments: argparse.Namespace) -> set[str]:
    """Return the names of the options that differ from their defaults."""
    parser = argparse.ArgumentParser()
    add_eval_options(parser)
    defaults: dict[str, Any] = {**vars(parser.parse_args([])), "overrides": []}
    own = vars(arguments)
    return {name for name in defaults if own.get(name, defaults[name]) != defaults[name]}


def _name(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


def _idle(name: str, needed: str) -> GemError:
    option = {"overrides": "set"}.get(name, name).replace("_", "-")
    shown = "sources" if name == "sources" else f"--{option}"
    return GemError(f"{shown} would have no effect: it goes with {needed}. Leave it out.")
