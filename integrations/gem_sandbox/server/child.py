"""The process in which a program runs.

It is forked and confined before the call comes, and warmed: the pages that every program writes to
are its own already. It reads requests from descriptor `REQUESTS`. A process that runs one program
ends with it, and its exit status is the answer: nothing that the program writes is one. The
interpreter of a session stays; it answers with the mark of the call and one byte.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import fcntl
import gc
import io
import json
import linecache
import os
import random
import shutil
import socket
import sys
import threading
import time
import traceback
from typing import Any, Literal, NamedTuple, NoReturn

from . import confine
from .library import FIRST as FIRST_FOLDER

REQUESTS = 3
_RULESET = 4
OK = 0
FAILED = 1
FULL = 114
"""How a program ended; also exit statuses. `FULL`: its files took more than is allowed."""
READY = b"r"
"""What a child sends when it is confined; its process id comes first, in four bytes."""
_FILE = "program.py"
_GARBAGE = 10_000  # new objects until the first collection
_WARM_UP = """
import math
values = [i for i in range(20)]
print(f"{sum(values) / 3:.2f}", sorted({"a": 1}), "a b".split(), math.sqrt(2))
def function(a, *b):
    return a + 1
class Thing:
    pass
function(1), Thing()
try:
    1 / 0
except ZeroDivisionError as error:
    str(error)
"""


class Place(NamedTuple):
    """Where a program runs.

    Attributes:
        folder: its slot's folder; programs start in the folder ``main`` in it.
        uid: its user, ``None``: the server's.
        ruleset: descriptor of its Landlock rule set, or -1.
        forks: whether it may fork, which a branch needs.
        warm: whether to touch the pages that every program touches, before the call comes.
    """

    folder: str
    uid: int | None
    ruleset: int
    forks: bool
    warm: bool


def main(
    place: Place,
    confinement: confine.Confinement,
    requests: int,
    output: int,
    null: int,
    parents: tuple[int, int],
) -> NoReturn:
    """Confine this process, which was just forked, and serve requests; never returns.

    Args:
        place: where it runs.
        confinement: how it is confined.
        requests: its socket.
        output: what it prints to.
        null: descriptor of ``/dev/null``.
        parents: process ids of its parent, which ends now, and of the server, which adopts it.
    """
    try:
        os.write(requests, os.getpid().to_bytes(4, "little"))
        ruleset = _descriptors(place.ruleset, requests, output, null, confinement.library)
        os.setpgid(0, 0)
        os.umask(0o077)
        _enter_folder(os.path.join(place.folder, "main"))
        while os.getppid() == parents[0]:
            time.sleep(0.0001)
        confinement.enter(place.uid, ruleset, parents[1], forks=place.forks)
        sys.stdin = _text_file(0, "r")
        sys.stdout = _text_file(1, "w")
        sys.stderr = sys.stdout
        if place.warm:
            _warm_up()
        _new_random_state()
        os.write(REQUESTS, READY)
    except BaseException:
        os.write(1, traceback.format_exc().encode())
        os._exit(FAILED)
    try:
        _serve()
    except BaseException:
        os.write(1, traceback.format_exc().encode())
    os._exit(FAILED)


def _descriptors(ruleset: int, requests: int, output: int, null: int, library: int) -> int:
    """Keep 0, 1, 2, `REQUESTS`, the rule set and the library; close everything else."""
    # Copies above all numbers that are overwritten below.
    above = FIRST_FOLDER + library
    copies = [_copy(descriptor, above) for descriptor in (null, output, output, requests)]
    if ruleset >= 0:
        copies.append(_copy(ruleset, above))
    for number, descriptor in enumerate(copies):
        os.dup2(descriptor, number)
    os.closerange(len(copies), FIRST_FOLDER)
    os.closerange(above, 4096)
    return _RULESET if ruleset >= 0 else -1


def _copy(descriptor: int, above: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD, above)


def _enter_folder(folder: str) -> None:
    os.chdir(folder)
    os.environ["HOME"] = folder
    os.environ["TMPDIR"] = folder


def _text_file(descriptor: int, mode: Literal["r", "w"]) -> io.TextIOWrapper:
    return open(descriptor, mode, encoding="utf-8", errors="replace", closefd=False)


def _new_random_state() -> None:
    """Make random numbers differ from call to call, also NumPy's where it is preloaded."""
    random.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


def _warm_up() -> None:
    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")):
        _execute(_WARM_UP, {"__name__": "__main__", "__builtins__": builtins})
    try:
        raise ValueError
    except ValueError:
        traceback.format_exc()


def _serve() -> NoReturn:
    names = _fresh_names()
    first = True
    while True:
        request = _read_request()
        if request["op"] == "branch":
            _branch(request["folder"])
            continue
        if first:
            _collect_garbage_rarely()
            first = False
        keep = bool(request["keep"])
        confine.apply(request["limits"], other_tasks=request["other_tasks"], keep=keep)
        _set_input(request["stdin"])
        names.update(request["names"])
        status = _run(request["code"], names)
        if not keep:
            status = _join_threads(status)
        status = _flush(status)
        if not keep:
            os._exit(status)
        os.write(REQUESTS, bytes.fromhex(request["mark"]) + bytes([status]))


def _collect_garbage_rarely() -> None:
    """Let the collector leave alone what the server made, and short programs entirely."""
    gc.freeze()
    gc.set_threshold(_GARBAGE, 10, 10)
    gc.enable()


def _fresh_names() -> dict[str, Any]:
    return {"__name__": "__main__", "__builtins__": builtins}


def _read_request() -> dict[str, Any]:
    size = int.from_bytes(_read(4), "little")
    request: dict[str, Any] = json.loads(_read(size))
    return request


def _read(size: int) -> bytes:
    """Read exactly ``size`` bytes; end this process when the server has gone."""
    parts = []
    while size:
        part = os.read(REQUESTS, min(size, 1 << 20))
        if not part:
            os._exit(0)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _set_input(text: str | None) -> None:
    """Make a text the standard input, as a file without a name; ``None`` leaves it empty."""
    if text is None:
        return
    name = f".stdin-{os.getpid()}"
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.unlink(name)
    data = text.encode("utf-8", errors="replace")
    while data:
        data = data[os.write(descriptor, data) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.dup2(descriptor, 0)
    os.close(descriptor)
    sys.stdin = _text_file(0, "r")


def _run(code: str, names: dict[str, Any]) -> int:
    # Tracebacks show the program's lines.
    linecache.cache[_FILE] = (len(code), None, code.splitlines(keepends=True), _FILE)
    try:
        _execute(code, names)
        return OK
    except SystemExit as stop:
        if isinstance(stop.code, str):
            print(stop.code)
        return OK if stop.code in (None, 0) else FAILED
    except BaseException as error:
        _print_error(error)
        no_space = isinstance(error, OSError) and error.errno == errno.ENOSPC
        return FULL if no_space else FAILED


def _execute(code: str, names: dict[str, Any]) -> None:
    exec(compile(code, _FILE, "exec", dont_inherit=True), names)


def _print_error(error: BaseException) -> None:
    """Print a traceback that begins in the program."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != _FILE:
        trace = trace.tb_next
    try:
        lines = traceback.format_exception(type(error), error, trace, limit=-5)
        sys.stdout.write("".join(lines))
    except BaseException as second:  # the program's own __str__ may raise, memory may be full
        os.write(1, f"{type(error).__name__} ({type(second).__name__})\n".encode())


def _join_threads(status: int) -> int:
    """Wait for the program's threads, as Python does at its end."""
    if threading.active_count() == 1:
        return status
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()
    return status


def _flush(status: int) -> int:
    try:
        sys.stdout.flush()
        return status
    except BaseException:  # the program closed or replaced it
        return FAILED


def _branch(folder: str) -> None:
    """Fork this interpreter; the copy serves the connection that the server sends with the request.

    The files are copied too, to ``folder``; both processes go on from the same state.
    """
    with socket.socket(fileno=os.dup(REQUESTS)) as requests:
        _, descriptors, _, _ = socket.recv_fds(requests, 1, 2)
    new, output = descriptors
    try:
        parent = os.fork() != 0
    except OSError as error:  # as many processes as are allowed
        os.write(output, f"{error}".encode())
        os.write(new, bytes([FAILED]) + bytes(4))
        parent = True
    if parent:
        os.close(new)
        os.close(output)
        return
    os.dup2(new, REQUESTS)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(new)
    os.close(output)
    status = OK
    try:
        shutil.copytree(".", folder, symlinks=True)
        _enter_folder(folder)
    except (OSError, shutil.Error) as error:
        print(error)
        status = _flush(FAILED)
    # The server checks that this process belongs to the session.
    os.write(REQUESTS, bytes([status]) + os.getpid().to_bytes(4, "little"))
