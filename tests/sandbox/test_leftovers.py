"""What a program leaves in its slot: the next one in it finds nothing, and works."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import pytest

from gem_core.execution.sandbox import SandboxLimits, SandboxUnavailable
from gem_sandbox import Sandbox

LIMITS = SandboxLimits(seconds=10, cpu_s=10, memory_mb=256)
LEAVINGS = {
    "a folder in place of its own": "os.rmdir('../main'); os.mkdir('../main', 0)",
    "a file in place of its folder": "os.rename('../main', '../x'); open('../main', 'w').close()",
    "a link in place of its folder": "os.rename('../main', '../x'); os.symlink('/', '../main')",
    "no folder": "os.rmdir('../main')",
    "a folder that all may write to": "os.rmdir('../main'); os.umask(0); os.mkdir('../main', 511)",
    "names that clean-up might use": "for number in range(9):\n"
    "    for pid in {1, 2, os.getppid()}:\n"
    "        os.makedirs(f'../.moved-{number}-{pid}/a/b')\n"
    "os.makedirs('../y/a/b/c'); os.makedirs('../z/a/b/c')",
    "deep folders": "for number in range(900): os.mkdir('d' * 200); os.chdir('d' * 200)",
    "closed folders": "for number in range(50):\n"
    "    os.makedirs(f'{number}/a'); open(f'{number}/a/f', 'w').close()\n"
    "    os.mkdir(f'{number}/b', 0); os.mkdir(f'{number}/c', 0o300)\n"
    "    open(f'{number}/c/f', 'w').close()",
    "long names and bytes": "for number in range(200):\n"
    "    open(b'\\xff\\n\\x80' + bytes([97 + number % 26]) * 240 + b'%d' % number, 'w').close()",
    "hard links": "open('f', 'w').close()\nfor number in range(1000): os.link('f', f'f{number}')",
    "links in a circle": "os.symlink('.', 'a'); os.symlink('../main', '../b'); os.mkdir('c')\n"
    "os.symlink('../..', 'c/d')",
    "locks and open files": "import fcntl\n"
    "for number in range(11): fcntl.flock(number, fcntl.LOCK_EX) if number != 4 else 0\n"
    "held = [open(f'f{number}', 'w') for number in range(20)]\n"
    "for file in held: fcntl.lockf(file, fcntl.LOCK_EX)",
}
"""What a program may leave behind."""
NEXT = """
import fcntl, os
print(os.listdir('.'), os.listdir('..'), os.path.basename(os.getcwd()))
print(oct(os.stat('.').st_mode), oct(os.stat('..').st_mode))
open('new', 'w').write('text'); os.mkdir('made'); fcntl.lockf(open('new', 'w'), fcntl.LOCK_EX)
"""
CLEAN = "[] ['main'] main\n0o40700 0o40700\n"


@pytest.fixture(params=["strict", "confined", "limited"], scope="module")
def one_slot(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """A sandbox whose programs all run in the same slot."""
    try:
        sandbox = Sandbox(request.param, slots=1, spares=0, limits=LIMITS)
    except SandboxUnavailable:
        sandbox = Sandbox("confined", slots=1, spares=0, limits=LIMITS)
    with sandbox:
        yield sandbox


@pytest.mark.parametrize("leaving", LEAVINGS)
def test_the_next_program_finds_an_empty_folder(one_slot: Sandbox, leaving: str) -> None:
    for _ in range(2):
        left = one_slot.run("import os\n" + LEAVINGS[leaving])
        assert left.error in (None, "disk_limit") or "Error" in left.output, left
        found = one_slot.run(NEXT)
        assert (found.output, found.error) == (CLEAN, None), found


@pytest.mark.parametrize("level", ["strict", "confined"])
def test_a_shell_that_closes_its_folder_hurts_nobody_else(level: str) -> None:
    with Sandbox(level, slots=1, spares=0, programs=True, limits=LIMITS) as sandbox:
        for command in (
            "chmod 0 . ..",
            "chmod 777 . ..; touch .. .",
            "mkdir a; chmod 0 a; rm -rf .",
        ):
            code = f"import subprocess; subprocess.run(['/bin/bash', '-c', {command!r}])"
            assert sandbox.run(code).error is None
            found = sandbox.run(NEXT)
            assert (found.output, found.error) == (CLEAN, None), (command, found)


def test_a_program_that_fills_its_pipe_and_stops_is_ended(sandbox: Sandbox) -> None:
    code = """
        import os, signal
        os.write(1, b"x" * 100_000)
        os.set_blocking(1, False)
        try:
            while True: os.write(1, b"x" * 1000)
        except BlockingIOError: pass
        os.kill(os.getpid(), signal.SIGSTOP)
    """
    limits = SandboxLimits(seconds=0.5, output_kb=10_000)
    result = sandbox.run(textwrap.dedent(code), limits=limits)
    assert result.error in ("timeout", "output_limit") and len(result.output) >= 100_000
    assert sandbox.run("print(1)").output == "1\n"


def test_a_branching_session_gets_a_slot_that_a_spare_child_holds() -> None:
    with Sandbox("confined", slots=1, spares=1) as sandbox:
        assert sandbox.run("print(1)").ok
        with sandbox.session(branches=True) as session:
            assert session.run("print(2)").output == "2\n"
