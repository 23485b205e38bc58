"""The level *guarded*: resource limits against mistakes, and no protection against malice.

A program runs in a new process with limits and a deadline; at the end its whole process tree is
ended, including detached processes. It has access to the user's files and to the network. This
level is never a default: it must be asked for by name.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gem_core.execution.sandbox.results import SandboxLimits, SandboxResult

_RUNNER = str(Path(__file__).with_name("_guarded_runner.py"))
_MB = 1 << 20
_START_SECONDS = 10.0  # for Python to start, on a busy machine
_KINDS = {
    "ok": None,
    "error": "error",
    "compile_error": "error",
    "timeout": "timeout",
    "output_limit": "output_limit",
    "killed": "killed",
    "runner_died": "killed",
}  # fmt: skip


def run(
    code: str, stdin: str | None, names: Mapping[str, Any], limits: SandboxLimits
) -> SandboxResult:
    """Run a program; see `gem_sandbox.Sandbox.run`."""
    job: dict[str, Any] = {
        "code": code.encode(errors="replace").decode(),
        "stdin": stdin or "",
        "names": dict(names),
        "limits": rlimits(limits.cpu_s, limits.memory_mb, limits.file_mb, limits.threads),
        "seconds": limits.seconds,
        "max_output": int(limits.output_kb * 1024),
    }
    started = time.monotonic()
    # A byte of the output takes up to six in JSON.
    body = _run_job(job, limits.seconds + _START_SECONDS, 8 * job["max_output"] + _MB)
    seconds = time.monotonic() - started
    if body is None:
        return SandboxResult("", "timeout", seconds, False, "guarded")
    try:
        result = json.loads(body)
    except ValueError:  # the runner died
        return SandboxResult("", "killed", seconds, False, "guarded")
    status = result["status"]
    output = result["output"]
    return SandboxResult(output, _KINDS[status], seconds, status == "output_limit", "guarded")


def _run_job(job: dict[str, Any], seconds: float, most: int) -> bytes | None:
    """Run a job, in the form that `_guarded_runner` reads.

    Args:
        job: the program and its limits.
        seconds: wall seconds of all of it.
        most: largest reply in bytes.

    Returns:
        The runner's reply; ``b""`` if it died, ``None`` if it exceeded the deadline.
    """
    with tempfile.TemporaryDirectory(prefix="gem-code-", ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", _RUNNER, str(os.getpid())],  # for `ps`
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={"PATH": os.defpath, "HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8"},
            start_new_session=True,
        )
        try:
            return _exchange(process, json.dumps(job).encode(), seconds, most)
        finally:
            end_tree(process)


def rlimits(cpu_s: float, memory_mb: float, file_mb: float, processes: int) -> dict[str, int]:
    """Return the resource limits of a program, by their names in `resource`."""
    return {
        "RLIMIT_AS": int(memory_mb * _MB),
        "RLIMIT_FSIZE": int(file_mb * _MB),
        # The CPU time of a fork starts at zero, so this limit holds for each test.
        "RLIMIT_CPU": math.ceil(cpu_s),
        # As the superuser, the runner becomes a new user, who has no processes yet.
        "RLIMIT_NPROC": (_user_processes() if os.getuid() else 1) + processes,
        "RLIMIT_CORE": 0,
        "RLIMIT_NOFILE": 256,
    }


def _exchange(
    process: subprocess.Popen[bytes], job: bytes, seconds: float, most: int
) -> bytes | None:
    assert process.stdin is not None and process.stdout is not None
    until = time.monotonic() + seconds
    with contextlib.suppress(BrokenPipeError), process.stdin:
        process.stdin.write(job)
    reply = b""
    poll = select.poll()
    poll.register(process.stdout, select.POLLIN | select.POLLHUP)
    while True:
        left = until - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            return None
        part = os.read(process.stdout.fileno(), 1 << 16)
        if not part:
            return reply
        reply += part
        if len(reply) > most:
            return b""


def end_tree(process: subprocess.Popen[bytes]) -> None:
    """End a process and all its descendants, including those that left its group or session.

    The process is a subreaper (on Linux): as long as it lives, all processes that it started are
    its descendants. Therefore it is stopped first and killed last.
    """
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGSTOP)
    for _ in range(100):
        groups = {group for _, group in descendants(process.pid)} - {process.pid}
        # A signal to a group reaches all its processes at once, also those of a fork bomb.
        for group in groups:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        if not groups:
            break
        time.sleep(0.001)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def descendants(root: int) -> Iterator[tuple[int, int]]:
    """Yield (pid, process group) of the living processes below ``root`` or in its session.

    The session is included because the children of a dead process are no longer below it. Nothing
    is yielded where there is no /proc.
    """
    children: dict[int, list[_Process]] = {}
    for process in _processes():
        if process.state != "Z" and process.pid != root:
            parent = root if process.session == root else process.parent
            children.setdefault(parent, []).append(process)
    queue = list(children.get(root, ()))
    while queue:
        process = queue.pop()
        yield process.pid, process.group
        queue += children.get(process.pid, ())


class _Process(NamedTuple):
    pid: int
    parent: int
    group: int
    session: int
    state: str


def _user_processes() -> int:
    """Return the number of the user's processes, as RLIMIT_NPROC counts them."""
    uid = os.getuid()
    count = 0
    for process in _processes():
        with contextlib.suppress(FileNotFoundError):
            count += os.stat(f"/proc/{process.pid}").st_uid == uid
    return count


def _processes() -> Iterator[_Process]:
    try:
        names = os.listdir("/proc")
    except FileNotFoundError:
        return
    for name in filter(str.isdigit, names):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The second field, the command in brackets, may contain any character.
                fields = file.read().rpartition(b")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        parent, group, session = map(int, fields[1:4])
        yield _Process(int(name), parent, group, session, fields[0].decode())
