# ruff: noqa: SIM105, SIM115 (the fewest imports; and the process ends instead of closing)
"""Run one program with resource limits: ``python -I -S _guarded_runner.py``.

It imports as little of the standard library as possible, because it is a new process for each
program. It reads a JSON job from its standard input, prints one JSON reply and waits to be killed.
The program runs in a fork of this process. The parent enforces the overall deadline and ends the
rest of the process tree.
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
from typing import TYPE_CHECKING

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
_ERROR = 111  # exit status of a program that raised
_FILES = 256  # open files of a process
_LIBRARY = 250  # from here on: the folders of the standard library, where they have to be kept open


def main() -> None:
    job = json.loads(sys.stdin.buffer.read())
    reply_to = os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    try:  # orphans of a program become children of this process, so that the parent finds them
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (OSError, AttributeError):
        pass
    limit(job)
    if os.getuid() == 0:
        try:
            drop_privileges(_FIRST_UID + os.getpid() % 1_000_000)
        except OSError as error:
            answer(reply_to, {"status": "runner_died", "output": describe(error)})
    try:
        code = compile(job["code"], "program.py", "exec", dont_inherit=True)
    except Exception as error:  # also for null bytes and too deep nesting
        answer(reply_to, {"status": "compile_error", "output": describe(error)})
    answer(reply_to, run(code, job))


def answer(descriptor: int, result: Result) -> NoReturn:
    """Send the reply and wait to be killed: until then, orphans stay children of this process."""
    body = json.dumps(result).encode()
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
        # The soft limit of CPU time sends SIGXCPU, which can be recognised; the hard one SIGKILL.
        above = value + 1 if name == "RLIMIT_CPU" else value
        if hard != resource.RLIM_INFINITY:
            above = min(above, hard)
        resource.setrlimit(number, (value, above))


def drop_privileges(uid: int) -> None:
    """Become a new user: the kernel does not limit the number of the superuser's processes.

    Where Python is installed below a private folder, its library is read through open folders. If
    these are private too, the process keeps the right to read all files.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    os.chown(".", uid, uid)
    private = not readable_by_all(os.__file__) and not keep_library_open()
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
            raise PermissionError(
                f"Python's library, {os.path.dirname(os.__file__)}, cannot be read by the user "
                "that programs run as: make that folder readable for all"
            )
    # After a change of user, /proc hides a process; the parent must see this one.
    libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def readable_by_all(path: str) -> bool:
    if not os.stat(path).st_mode & 0o4:
        return False
    while path != "/":
        path = os.path.dirname(path)
        if not os.stat(path).st_mode & 0o1:
            return False
    return True


def keep_library_open() -> bool:
    """Make imports use open folders, which do not depend on the rights of their parent folders.

    Return whether every user can then read the library; if not, nothing has changed.
    """
    folders = [path for path in sys.path if os.path.isdir(path)]
    files = [*folders, os.__file__]
    if not os.path.isdir("/proc/self/fd") or len(folders) > _FILES - _LIBRARY:
        return False
    if not all(os.stat(path).st_mode & (0o5 if path in folders else 0o4) for path in files):
        return False
    moved = {}
    for number, folder in enumerate(folders, _LIBRARY):
        descriptor = os.open(folder, os.O_RDONLY)
        os.dup2(descriptor, number, inheritable=False)
        os.close(descriptor)
        moved[folder] = f"/proc/self/fd/{number}"
    sys.path[:] = [moved[folder] for folder in folders]
    sys.path_importer_cache.clear()
    for module in list(sys.modules.values()):  # packages may import more modules later
        if isinstance(getattr(module, "__path__", None), list):
            module.__path__[:] = [move_path(path, moved) for path in module.__path__]
    return True


def move_path(path: str, moved: dict[str, str]) -> str:
    for folder in sorted(moved, key=len, reverse=True):
        if path.startswith(folder + "/"):
            return moved[folder] + path[len(folder) :]
    return path


def run(code: CodeType, job: dict[str, Any]) -> Result:
    """Run the program in a fork; return its status and output."""
    read_end, write_end = os.pipe()
    input_read, input_write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read_end)
            os.close(input_write)
            os.setpgid(0, 0)
            execute(code, job["names"], input_read, write_end)
        finally:
            os._exit(_ERROR)
    os.close(write_end)
    os.close(input_read)
    data = job["stdin"].encode(errors="replace")
    output, status = talk(child, input_write, data, read_end, job["seconds"], job["max_output"])
    try:
        os.killpg(child, signal.SIGKILL)
    except OSError:
        pass
    os.waitpid(child, 0)
    return {"status": status, "output": output.decode("utf-8", errors="replace")}


def talk(
    child: int, input_end: int, data: bytes, output_end: int, seconds: float, most: int
) -> tuple[bytes, str]:
    """Write the input and read the output until the child closes it, or a limit is reached."""
    os.set_blocking(input_end, False)
    until = time.monotonic() + seconds
    poll = select.poll()
    poll.register(output_end, select.POLLIN | select.POLLHUP)
    if data:
        poll.register(input_end, select.POLLOUT)
    else:
        os.close(input_end)
        input_end = -1
    output = b""
    status = "timeout"
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


def execute(code: CodeType, names: dict[str, Any], input_end: int, output_end: int) -> None:
    """Run the program and end the process; called in the fork."""
    os.dup2(input_end, 0)
    os.dup2(output_end, 1)
    os.closerange(3, _LIBRARY)  # among them the pipe of our reply
    sys.stdin = open(0, encoding="utf-8", errors="replace", newline=None)
    sys.stdout = open(1, "w", encoding="utf-8", errors="replace", closefd=False)
    try:
        import builtins  # normally, the `site` module adds these; programs use them

        vars(builtins).update(exit=sys.exit, quit=sys.exit)
        sys.setrecursionlimit(10_000)
        exec(code, {"__name__": "__main__", "__builtins__": builtins, **names})
    except SystemExit as stop:
        leave(0 if stop.code in (None, 0) else _ERROR)
    except BaseException as error:
        sys.stdout.write("\n" + describe(error))
        leave(_ERROR)
    leave(0)


def leave(status: int) -> NoReturn:
    try:
        sys.stdout.flush()
    except BaseException:
        status = _ERROR
    os._exit(status)


def describe(error: BaseException) -> str:
    return (type(error).__name__ + ": " + str(error))[:200]


if __name__ == "__main__":
    main()
