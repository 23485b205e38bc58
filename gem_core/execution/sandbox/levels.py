"""The levels of isolation: what each promises, and which of them is asked for."""

from __future__ import annotations

import os

from gem_core.errors import did_you_mean
from gem_core.execution.sandbox.results import SandboxError

VARIABLE = "GEM_CORE_SANDBOX"
"""Environment variable that names the level where a program's own settings do not."""

LEVELS = {
    "strict": "own network, process, IPC and mount namespaces, a root folder with Python and the "
    "system's libraries only, one folder in memory of limited size; plus all of 'confined'",
    "confined": "Landlock, seccomp, resource limits, and as root a user of its own; needs no "
    "privileges, works in Docker and under Ray",
    "limited": "as 'confined' on kernels without Landlock; needs root. Files that everybody may "
    "read stay readable, folders that everybody may write to stay writable",
    "container": "a docker or podman container, with 'confined' inside",
    "guarded": "resource limits against mistakes; no protection against malice. Must be asked for",
}  # fmt: skip
"""Every level, the strongest first; ``container`` depends on the engine's own isolation."""

DEFAULTS = ("strict", "confined", "limited")
"""The levels of which the strongest that the machine offers is the default."""


def choose_level(level: str | None) -> str | None:
    """Return the level that is asked for, by an argument or by `VARIABLE`; ``None``: the default.

    Raises:
        SandboxError: there is no such level.
    """
    name = level if level is not None else os.environ.get(VARIABLE) or None
    if name is not None and name not in LEVELS:
        source = "" if level is not None else f" (from {VARIABLE})"
        raise SandboxError(
            f"There is no sandbox level {name!r}{source}: choose {', '.join(LEVELS)}."
            f"{did_you_mean(name, LEVELS)}"
        )
    return name


def fulfills(promised: str, needed: str) -> bool:
    """Return whether a level is at least as strong as one that is needed."""
    order = list(LEVELS)
    return order.index(promised) <= order.index(needed)
