"""Sandboxes, one for each level, and the refusal of a level that this machine does not offer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gem_core.execution.sandbox import SandboxUnavailable
from gem_sandbox import Sandbox

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def at_level() -> Iterator[Callable[[str], Sandbox | str]]:
    """Return a function: the sandbox of a level, or the reason why there is none."""
    made: dict[str, Sandbox | str] = {}

    def get(level: str) -> Sandbox | str:
        if level not in made:
            try:
                made[level] = Sandbox(level)
            except SandboxUnavailable as refusal:
                made[level] = str(refusal)
        return made[level]

    yield get
    for sandbox in made.values():
        if isinstance(sandbox, Sandbox):
            sandbox.close()


@pytest.fixture(params=["strict", "confined", "limited"])
def sandbox(request: pytest.FixtureRequest, at_level: Callable[[str], Sandbox | str]) -> Sandbox:
    """A sandbox at each level; where the machine lacks one, the strongest that it offers."""
    offered = at_level(request.param)
    if isinstance(offered, Sandbox):
        return offered
    assert "cannot run here" in offered, offered
    strongest = at_level("confined")
    assert isinstance(strongest, Sandbox), strongest
    return strongest
