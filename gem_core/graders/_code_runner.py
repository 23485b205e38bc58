# ruff: noqa: SIM105, SIM115 (the fewest imports; and the process ends instead of closing)
"""Runs one program on its tests under resource limits: ``python -I -S _code_runner.py``.

Standard library only, and of that as little as possible: it is a new process for each program. It
reads a JSON job from its standard input, prints one JSON reply and waits to be killed. Each test
runs in a fork of this process, so a test can neither see nor spoil another one. The parent enforces
the deadline of the whole and ends what is left of the process tree.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any, NoReturn

    Result = dict[str, str]

_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_DUMPABLE = 4
_PR_SET_KEEPCAPS = 8
_CAPABILITY_VERSION_3 = 0x20080522
_CAP_DAC_READ_SEARCH = 2
_FIRST_UID = 2_000_000
_ERROR = 111  # exit status of a test whose program raised


def main() -> None:
    job = json.loads(sys.stdin.buffer.read())
    reply_to = os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    try:  # orphans of a program become our children, so the parent still finds them
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (OSError, AttributeError):
        pass
    limit(job)
    if os.getuid() == 0:
        drop_privileges(_FIRST_UID + os.getpid() % 1_000_000)
    try:
        code = compile(job["code"], "program.py", "exec", dont_inherit=True)
    except Exception as error:  # also of strange texts: null bytes, too deep nesting
        answer(reply_to, [{"status": "compile_error", "error": describe(error)}])
    results = []
    for test in job["tests"]:
        results.append(run(code, test, job))
        if results[-1]["status"] != "ok" and job["stop_early"]:
            break
    answer(reply_to, results)


def answer(descriptor: int, results: list[Result]) -> NoReturn:
    """Send the reply and wait to be killed: as long as we live, orphans stay below us."""
    body = json.dumps(results).encode()
    while body:
        body = body[os.write(descriptor, body) :]
    os.close(descriptor)
    while True:
        signal.pause()


def limit(job: dict[str, Any]) -> None:
    for name, value in job["limits"].items():
        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        # At the soft limit of CPU time SIGXCPU says what happened; at the hard one it is SIGKILL.
        above = value + 1 if name == "RLIMIT_CPU" else value
        if hard != resource.RLIM_INFINITY:
            above = min(above, hard)
        resource.setrlimit(number, (value, above))


def drop_privileges(uid: int) -> None:
    """Become a user of our own: the kernel holds no superuser to a number of processes.

    Where Python itself lies in a private folder, the right to read files stays.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    os.chown(".", uid, uid)
    private = not readable_by_all(os.__file__)
    libc.prctl(_PR_SET_KEEPCAPS, int(private), 0, 0, 0)
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    if private:
        header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
        kept = 1 << _CAP_DAC_READ_SEARCH
        # effective, permitted, inheritable; then the same for capabilities from 32 on
        sets = (ctypes.c_uint32 * 6)(kept, kept, 0, 0, 0, 0)
        if libc.capset(header, sets) != 0:
            raise OSError(ctypes.get_errno(), "capset failed")
    # A change of user makes a process its own secret; the parent has to see it in /proc.
    libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def readable_by_all(path: str) -> bool:
    if not os.stat(path).st_mode & 0o4:
        return False
    while path != "/":
        path = os.path.dirname(path)
        if not os.stat(path).st_mode & 0o1:
            return False
    return True


def run(code: CodeType, test: dict[str, Any], job: dict[str, Any]) -> Result:
    """Run one test in a fork; return its status and output."""
    read_end, write_end = os.pipe()
    input_read, input_write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read_end)
            os.close(input_write)
            os.setpgid(0, 0)
            execute(code, test, input_read, write_end)
        finally:
            os._exit(_ERROR)
    os.close(write_end)
    os.close(input_read)
    data = test.get("input", "").encode(errors="replace")
    output, status = talk(child, input_write, data, read_end, job["test_s"], job["max_output"])
    try:
        os.killpg(child, signal.SIGKILL)
    except OSError:
        pass
    os.waitpid(child, 0)
    return verdict(status, output, test)


def talk(
    child: int, input_end: int, data: bytes, output_end: int, seconds: float, most: int
) -> tuple[bytes, str]:
    """Feed the input and collect the output until the child closes it, or a limit is met."""
    os.set_blocking(input_end, False)
    until = time.monotonic() + seconds
    poll = select.poll()
    poll.register(output_end, select.POLLIN | select.POLLHUP)
    if data:
        poll.register(input_end, select.POLLOUT)
    else:
        os.close(input_end)
        input_end = -1
    output, status = b"", "timeout"
    while True:
        left = until - time.monotonic()
        if left <= 0:
            break
        closed = False
        for descriptor, event in poll.poll(left * 1000):
            if descriptor == output_end:
                part = os.read(output_end, 65536)
                closed = not part
                output += part
            elif event & select.POLLOUT:
                try:
                    data = data[os.write(input_end, data[:65536]) :]
                except BrokenPipeError:
                    data = b""
            else:
                data = b""
            if not data and input_end >= 0:
                poll.unregister(input_end)
                os.close(input_end)
                input_end = -1
        if len(output) > most:
            status = "output_limit"
            break
        if closed:
            status = wait(child, until)
            break
    if input_end >= 0:
        os.close(input_end)
    os.close(output_end)
    return output, status


def wait(child: int, until: float) -> str:
    """Return the status of a child that has closed its output."""
    while time.monotonic() < until:
        info = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if info is not None:
            if info.si_code == os.CLD_EXITED:
                return "ok" if info.si_status == 0 else "error"
            return "timeout" if info.si_status == signal.SIGXCPU else "killed"
        time.sleep(0.0005)
    return "timeout"


def execute(code: CodeType, test: dict[str, Any], input_end: int, output_end: int) -> None:
    """In the fork: run the program on one test, then leave the process."""
    os.dup2(input_end, 0)
    os.dup2(output_end, 1)
    os.closerange(3, 256)  # among them the pipe of our reply
    sys.stdin = open(0, encoding="utf-8", errors="replace", newline=None)
    sys.stdout = open(1, "w", encoding="utf-8", errors="replace", closefd=False)
    try:
        import builtins  # the `site` module adds these, and programs use them

        vars(builtins).update(exit=sys.exit, quit=sys.exit)
        function = test.get("function")
        names = {
            "__name__": "__main__" if function is None else "program",
            "__builtins__": builtins,
        }
        sys.setrecursionlimit(10_000)
        if function is None:
            exec(code, names)
        else:
            sys.stdout = open(os.devnull, "w")
            exec(code, names)
            result = lookup(names, function)(*test["args"])
            sys.stdout = open(1, "w", encoding="utf-8", closefd=False)
            sys.stdout.write("\n" + test["mark"] + json.dumps(result, default=list))
    except SystemExit as stop:
        leave(0 if stop.code in (None, 0) else _ERROR)
    except BaseException as error:
        sys.stdout.write("\n" + describe(error))
        leave(_ERROR)
    leave(0)


def lookup(names: dict[str, Any], function: str) -> Any:
    """Return a function, or the method of a class `Solution`."""
    if function in names:
        return names[function]
    return getattr(names["Solution"](), function)


def leave(status: int) -> NoReturn:
    try:
        sys.stdout.flush()
    except BaseException:
        status = _ERROR
    os._exit(status)


def verdict(status: str, output: bytes, test: dict[str, Any]) -> Result:
    text = output.decode("utf-8", errors="replace")
    if status != "ok":
        return {"status": status, "error": text[-200:]}
    if "function" not in test:
        return {"status": "ok", "output": text}
    _, found, value = text.rpartition("\n" + test["mark"])
    if not found:
        return {"status": "error", "error": "the function did not return"}
    return {"status": "ok", "output": value}


def describe(error: BaseException) -> str:
    return (type(error).__name__ + ": " + str(error))[:200]


if __name__ == "__main__":
    main()
