"""What a program may hold: also without a name, and what that means for its neighbours."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from test_programs import sandboxes  # noqa: F401

from gem_core.execution.sandbox import SandboxLimits
from gem_core.execution.sandbox.shell import Shell, ShellLimits
from gem_sandbox import Sandbox

ROOT = Path(__file__).resolve().parents[2]
LIMITS = SandboxLimits(seconds=60, cpu_s=60, memory_mb=512, file_mb=16, disk_mb=32)
MOST = 300  # MB that an attempt tries to hold; far below what would hurt the machine
HOLD = f"""
import ctypes, mmap, os, time
held = []
def take(number): ...
{{take}}
for number in range({MOST // 12}):
    take(number)
while True: time.sleep(0.01)
"""
"""A program that holds what it took until the sandbox ends it."""
FILE = "    file = open(f'f{number}', 'w+b'); file.write(bytes(12 << 20)); file.flush()\n"
WAYS = {
    "with names": FILE,
    "removed but open": FILE + "    os.unlink(file.name); held.append(file)",
    "renamed over": FILE + "    os.rename(file.name, 'same'); held.append(file)",
    "never named": "    made = os.open('.', os.O_TMPFILE | os.O_RDWR)\n"
    "    os.write(made, bytes(12 << 20))",
    "mapped, removed and closed": FILE + "    os.unlink(file.name)\n"
    "    held.append(mmap.mmap(file.fileno(), 4096))\n"
    "    file.close(); os.closerange(4, 10); os.closerange(12, 64)",
    "written through a map": "    file = open(f'f{number}', 'w+b'); file.truncate(12 << 20)\n"
    "    view = mmap.mmap(file.fileno(), 12 << 20); os.unlink(file.name)\n"
    "    for at in range(0, 12 << 20, 4096): view[at] = 1\n"
    "    held.append(view)",
    "many files": "    for other in range(200): open(f'f{number}-{other}', 'wb').close()",
}
"""How a program may hold what it wrote: the function that takes the next 12 MB."""


def attempt(way: str) -> str:
    return HOLD.format(take="def take(number):\n" + WAYS[way])


def check_neighbours(sandbox: Sandbox, code: str) -> None:
    """Run a program over its quota, and correct ones beside it until it is ended."""
    good = "open('f', 'wb').write(bytes(8 << 20)); print(len(open('f', 'rb').read()))"
    with ThreadPoolExecutor(1) as thread:
        offender = thread.submit(sandbox.run, code, limits=LIMITS)
        while True:
            over = offender.done()
            result = sandbox.run(good, limits=LIMITS)
            assert (result.output, result.error) == (f"{8 << 20}\n", None), result
            if over:
                break
    assert offender.result().error == "disk_limit", offender.result()


@pytest.mark.parametrize("way", WAYS)
def test_whatever_a_program_holds_counts_and_hurts_only_itself(sandbox: Sandbox, way: str) -> None:
    check_neighbours(sandbox, attempt(way))


@pytest.mark.parametrize("level", ["strict", "confined"])
def test_processes_of_a_program_share_its_quota(
    sandboxes: Callable[[str], Sandbox],  # noqa: F811
    level: str,
) -> None:
    """Their parent sleeps meanwhile."""
    code = "import os\nif os.fork() == 0:\n" + textwrap.indent(attempt("removed but open"), "    ")
    waits = "\n_, status = os.wait()\nos._exit(os.waitstatus_to_exitcode(status) & 255)"
    caught = code.replace(
        "    take(number)", "    try: take(number)\n        except OSError: os._exit(114)"
    )
    check_neighbours(sandboxes(level), caught + waits)


def test_a_session_and_its_branches_share_a_quota(sandbox: Sandbox) -> None:
    with sandbox.session(branches=True, limits=LIMITS) as session:
        assert session.run("open('f', 'wb').write(bytes(12 << 20))").ok
        branch = session.branch()
        assert branch.run(attempt("removed but open")).error == "disk_limit"
        assert session.run("import os; print(os.path.getsize('f'))").ok
        smaller = LIMITS._replace(disk_mb=8)
        assert session.run("import time; time.sleep(20)", limits=smaller).error == "disk_limit"


SHARED_MEMORY = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
size = 64 << 20
{prepare}
for number in range(5):
    at = libc.mmap(None, size, 3, {flags}, {file}, 0)
    if at == 2 ** 64 - 1: raise OSError(ctypes.get_errno(), "refused")
    for page in range(at, at + size, 4096):
        ctypes.c_char.from_address(page).value  # to read it is enough
    libc.munmap(at + 4096, size - 4096)  # the kernel keeps all of it
print("ESCAPED")
import time; time.sleep(60)
"""


@pytest.mark.parametrize(
    ("prepare", "flags", "file"),
    [("", 0x21, -1), ("file = open('/dev/zero', 'r+b')", 0x01, "file.fileno()")],
)
def test_shared_memory_does_not_get_round_the_limit_of_memory(
    sandbox: Sandbox, prepare: str, flags: int, file: object
) -> None:
    code = SHARED_MEMORY.format(prepare=prepare, flags=flags, file=file)
    result = sandbox.run(code, limits=LIMITS._replace(memory_mb=128))
    if sandbox.level == "limited" and prepare:  # everybody can open it
        assert result.error == "disk_limit"
    else:
        assert result.error == "error" and "ESCAPED" not in result.output


def test_private_memory_and_files_can_be_mapped(sandbox: Sandbox) -> None:
    code = """
        import mmap, tempfile
        view = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); view[5] = 1
        with tempfile.TemporaryFile() as file:
            file.write(bytes(1 << 20)); file.flush()
            with mmap.mmap(file.fileno(), 0) as view: view[7] = 3
            file.seek(7); print(file.read(1))
    """
    assert sandbox.run(textwrap.dedent(code)).output == "b'\\x03'\n"


def test_a_limit_of_each_call_holds_in_a_slot_that_is_used_again() -> None:
    code = "open('f', 'wb').write(bytes({} << 20)); print('written')"
    with Sandbox(slots=1, spares=0) as sandbox:
        for megabytes, most in ((4, 8), (12, 32), (4, 8), (1, 2)):
            limits = LIMITS._replace(disk_mb=most)
            assert sandbox.run(code.format(megabytes), limits=limits).output == "written\n"


def test_input_is_no_part_of_the_quota(sandbox: Sandbox) -> None:
    limits = LIMITS._replace(disk_mb=1)
    result = sandbox.run("print(len(input()))", stdin="x" * (3 << 20), limits=limits)
    assert result.output == f"{3 << 20}\n", result


def test_a_shell_over_its_quota_says_so() -> None:
    one = Shell({"a": "x"}, limits=ShellLimits(seconds=20))
    takes = "exec {fd}>f; rm f; head -c 12000000 /dev/zero >&$fd || exit 7"
    result = one.run(f"for i in 1 2 3 4; do {takes}; done; while :; do sleep 0.05; done")
    # The command sees it, or is ended by it.
    seen = result.status == 7 and "No space left" in result.output
    assert result.error == "disk_limit" or seen, result
    assert one.run("cat a").output == "x"


WITHOUT_RIGHT_TO_TRACE = """
import sys
sys.path[:0] = [{root!r}, {here!r}]
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
mask = sum(1 << bit for bit in (0, 1, 3, 5, 6, 7))  # as an engine leaves the root of a container
sets = (ctypes.c_uint32 * 6)(mask, mask, 0, 0, 0, 0)
for bit in range(64): libc.prctl(24, bit, 0, 0, 0) if not mask >> bit & 1 else None
assert libc.capset((ctypes.c_uint32 * 2)(0x20080522, 0), sets) == 0
from test_quotas import WAYS, attempt, check_neighbours
from gem_sandbox import Sandbox
with Sandbox("confined") as sandbox:
    assert sandbox.own_user
    for way in WAYS: check_neighbours(sandbox, attempt(way))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="the superuser of a container is meant")
def test_it_counts_without_the_right_to_trace() -> None:
    here = Path(__file__).resolve().parent
    code = WITHOUT_RIGHT_TO_TRACE.format(root=str(ROOT), here=str(here))
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
