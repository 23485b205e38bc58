"""Every attempt of the escape suite is held at the levels that promise it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attempts import ATTEMPTS, PREAMBLE, Attempt
from targets import SECRET, escaped, run_attempt, targets

from gem_sandbox import Sandbox


@pytest.fixture
def names(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    monkeypatch.setenv(SECRET, "1")
    with targets(sandbox) as made:
        yield made


def test_there_are_enough_attempts() -> None:
    assert len({attempt.name for attempt in ATTEMPTS}) == len(ATTEMPTS) >= 40


def held(sandbox: Sandbox, attempt: Attempt, names: dict[str, Any]) -> bool:
    result = run_attempt(sandbox, attempt, PREAMBLE, names)
    assert result.level == sandbox.level and result.error not in ("sandbox_died", "unavailable")
    return not escaped(result)


def test_every_attempt_is_held(sandbox: Sandbox, names: dict[str, Any]) -> None:
    promised = [attempt for attempt in ATTEMPTS if sandbox.level in attempt.levels]
    reached = [attempt.name for attempt in promised if not held(sandbox, attempt, names)]
    assert reached == []
    server = sandbox._servers[0]
    assert server is not None and server._process.poll() is None
    assert os.path.exists(names["private_file"])


@pytest.mark.parametrize("code", ["print('ESCAPED')", "read(public_file)"])
def test_the_suite_can_fail(sandbox: Sandbox, names: dict[str, Any], code: str) -> None:
    """A program that reaches its aim is seen: a file that everybody may read, at 'limited'."""
    attempt = Attempt("succeeds", code)
    reachable = "print" in code or sandbox.level == "limited"
    assert held(sandbox, attempt, names) is not reachable


WITHOUT_RIGHTS = """
import sys
sys.path[:0] = [{root!r}, {here!r}]
from gem_sandbox.server import libc
libc.drop_capabilities()
libc.no_new_privs()
from attempts import ATTEMPTS, PREAMBLE
from targets import escaped, run_attempt, targets
from gem_core.execution.sandbox import SandboxLimits, SandboxUnavailable
from gem_sandbox import Sandbox

threads = "import threading as t\\nfor _ in range(8): t.Thread(target=print, args=('a',)).start()"
with Sandbox("confined") as sandbox, targets(sandbox) as names:
    assert not sandbox.own_user
    assert sandbox.run(threads).output == "a\\n" * 8
    reached = [a.name for a in ATTEMPTS if escaped(run_attempt(sandbox, a, PREAMBLE, names))]
    assert reached == [], reached
try:
    strict = Sandbox("strict")
except SandboxUnavailable as refusal:
    assert "cannot run here" in str(refusal)
else:
    with strict:
        assert strict.run(threads).output == "a\\n" * 8 and strict.level == "strict"
"""


def test_everything_is_held_without_any_privilege() -> None:
    """As an ordinary user has it, or the superuser of a container: no capability, one user."""
    here = Path(__file__).resolve().parent
    code = WITHOUT_RIGHTS.format(root=str(here.parents[1]), here=str(here))
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
