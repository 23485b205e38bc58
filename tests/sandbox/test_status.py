"""How a program ended is for the sandbox to say: no program can forge it, or reach another call."""

from __future__ import annotations

import threading

import pytest

from gem_core.execution.sandbox import SandboxError, SandboxLimits
from gem_sandbox import Sandbox

QUICK = SandboxLimits(seconds=0.5, cpu_s=2, memory_mb=256)
WRITE_EVERYWHERE = """
import ctypes, os, socket, sys
libc = ctypes.CDLL(None)
answers = [b"0", b"1", b"r", b"\\0", bytes(64), os.getpid().to_bytes(4, "little") + b"r", b"\\1"]
frame = sys._getframe()
while frame is not None:  # what the sandbox itself would answer
    for value in list(frame.f_locals.values()):
        if isinstance(value, dict) and isinstance(value.get("mark"), str):
            mark = bytes.fromhex(value["mark"])
            answers += [mark + bytes([status]) for status in (0, 1, 114)]
    frame = frame.f_back
for number in range(3, 64):
    for answer in answers:
        libc.write(number, answer, len(answer))
        libc.send(number, answer, len(answer), 0x4000)
"""
ENDS = {
    "while True: pass": "timeout",
    "os.kill(os.getpid(), 9)": "killed",
    "os.abort()": "killed",
    "held = bytearray(1 << 30)": "error",
    "1 / 0": "error",
    "os._exit(113)": "error",
    "os._exit(255)": "error",
    "while True: os.write(1, bytes(1 << 16))": "output_limit",
}
"""How a program ends, and what it is called."""


@pytest.mark.parametrize("end", ENDS)
def test_what_a_program_writes_is_no_status(sandbox: Sandbox, end: str) -> None:
    assert sandbox.run(WRITE_EVERYWHERE + end, limits=QUICK).error == ENDS[end]


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos.closerange(0, 64)\nwhile True: pass",
        "import os\nfor n in range(3, 64): os.close(n) if n != 3 else os.dup2(0, 3)\nos._exit(7)",
        "import os\nos.read(3, 1)",
        "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
        "import os, signal\nos.kill(os.getpid(), signal.SIGXCPU)",
        "import os, signal\nos.kill(os.getpid(), signal.SIGBUS)",
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()",
        "import os\nos.nice(19)\nos.kill(os.getpid(), 6)",
        *(f"import os\nos._exit({status})" for status in (1, 2, 64, 113, 114, 120, 126, 127, 139)),
    ],
)
def test_no_program_looks_like_a_fault_of_the_sandbox(sandbox: Sandbox, code: str) -> None:
    """A policy would learn it: such episodes are left out of the training."""
    error = sandbox.run(code, limits=QUICK).error
    assert error not in (None, "unavailable", "sandbox_died", "session_over")


def test_an_answer_to_one_call_is_none_to_the_next(sandbox: Sandbox) -> None:
    early = "import threading, time\ndef again():\n    while True:\n        for answer in answers: "
    early += "libc.write(3, answer, len(answer))\n        time.sleep(0.001)\n"
    early += "threading.Thread(target=again, daemon=True).start()"
    for end in ("while True: pass", "1 / 0"):
        with sandbox.session(limits=QUICK) as session:
            assert session.run(WRITE_EVERYWHERE + early).ok
            assert session.run(end).error == ENDS[end]


@pytest.mark.parametrize("pid", [2**32 - 1, 2**31, 1, 0])
def test_a_branch_that_lies_about_its_process_harms_nobody(sandbox: Sandbox, pid: int) -> None:
    with sandbox.session() as neighbour, sandbox.session(branches=True) as session:
        assert neighbour.run("x = 1").ok
        assert session.run(f"import os\nos.getpid = lambda: {pid}").ok
        with pytest.raises(SandboxError, match="could not be copied"):
            session.branch()
        assert neighbour.run("print(x)").output == "1\n"


def test_a_flood_of_answers_does_not_keep_the_server_busy(sandbox: Sandbox) -> None:
    flood = "import os\nos.set_blocking(3, False)\nfor _ in range(500): os.write(3, bytes(1 << 16))"
    result = sandbox.run(flood + "\nprint('ESCAPED')", limits=SandboxLimits(seconds=30, cpu_s=30))
    assert result.error == "error" and "BlockingIOError" in result.output, result
    with sandbox.session() as session:
        blocks = "import os\nwhile True: os.write(3, bytes(1 << 16))"
        assert session.run(blocks, limits=SandboxLimits(seconds=60, cpu_s=60)).error == "killed"
    assert sandbox.run("print(1)").output == "1\n"


SEARCH = """
import ctypes, gc, os, sys
needle = bytes(reversed(reversed_needle.encode()))
found = []
frame = sys._getframe()
depth = 0
while frame is not None:
    for value in list(frame.f_locals.values()):
        for name in ("clients", "_clients", "server", "_server"):
            if hasattr(value, name): found.append(("frame", depth, name))
    frame, depth = frame.f_back, depth + 1
found += [type(item) for item in gc.get_objects() if type(item).__name__ in ("Client", "Server")]
libc = ctypes.CDLL(None)
libc.sbrk.restype = ctypes.c_void_p
page = 4096
reading, writing = os.pipe()
end = libc.sbrk(0) // page * page
objects = id(object()) // page * page
seen = bytearray()
for first, last in ((end - (64 << 20), end), (objects - (32 << 20), objects + (32 << 20))):
    for address in range(first, last, page):
        # The kernel refuses an address where nothing is.
        if libc.write(writing, ctypes.c_void_p(address), page) == page:
            seen += os.read(reading, page)
at = seen.find(needle)
while at >= 0:
    # Not the bytes that this program made itself.
    if seen[at + len(needle): at + len(needle) + 8] == b"-of-them": found.append(("memory", at))
    at = seen.find(needle, at + 1)
print(found, len(seen) > 1 << 20)
"""
"""Looks for another call's data in frames, in objects, and in all memory of the process."""


def test_no_data_of_other_calls_is_in_a_programs_memory() -> None:
    """Its process is a copy of another one, which must never have had them."""
    secret = "gem-core-secret"
    for level in ("strict", "confined"):
        with Sandbox(level, spares=0) as sandbox, sandbox.session() as neighbour:
            code = f"print('{secret}-of-them', given)"
            for _ in range(5):
                assert neighbour.run(code, names={"given": f"{secret}-of-them"}).ok
            running = threading.Thread(
                target=neighbour.run,
                args=(code + "\nimport sys; sys.stdout.flush()\nwhile True: pass",),
                kwargs={
                    "names": {"given": f"{secret}-of-them"},
                    "limits": SandboxLimits(seconds=2),
                },
            )
            running.start()
            names = {"reversed_needle": secret[::-1]}
            limits = SandboxLimits(seconds=20, cpu_s=20)
            for _ in range(3):
                assert sandbox.run(SEARCH, names=names, limits=limits).output == "[] True\n"
            running.join()
