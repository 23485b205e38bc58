"""Which levels of isolation this machine offers."""

from __future__ import annotations

from typing import NamedTuple

from gem_core.execution.sandbox.levels import LEVELS
from gem_core.execution.sandbox.results import SandboxUnavailable
from gem_sandbox.sandbox import Sandbox


class Offer(NamedTuple):
    """Whether this machine offers a level.

    Attributes:
        level: its name.
        how: what it is made of: ``"bwrap"``, ``"unshare"``, ...; ``""`` where it is not offered.
        reason: why not; ``""`` where it is.
    """

    level: str
    how: str = ""
    reason: str = ""


def offers() -> list[Offer]:
    """Try every level on this machine, by starting it; takes about a second."""
    tried = []
    for level in LEVELS:
        try:
            with Sandbox(level) as sandbox:
                tried.append(Offer(level, sandbox.how))
        except SandboxUnavailable as error:
            tried.append(Offer(level, reason=str(error)))
    return tried
