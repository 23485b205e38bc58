"""Run a program on its tests.

The program runs in a child process with resource limits (CPU time, memory, file size, processes)
and a deadline; at the end the child's whole process tree is ended, including detached processes.
This prevents damage by mistakes (endless loops, fork bombs, huge outputs). It does not protect
against malicious programs: a program has access to the user's files and network. To run programs
that you do not trust, run the whole trainer in a container.

A program can import Python's standard library and nothing else: no NumPy, nothing that is
installed. One that reads standard input imports what it uses. One that is tested by calling a
function need not import the names that coding sites provide, which
`gem_core.graders._code_runner.PROVIDED` lists: ``List`` and the like of `typing`, the usual ones of
`bisect`, `collections`, `copy`, `functools`, `heapq`, `itertools`, `math`, `operator` and `string`,
these modules themselves, and `datetime`, `json`, `random`, `re` and `sys`. The ``ListNode`` and
``TreeNode`` of those sites are not there.
"""

from __future__ import annotations

import ast
import contextlib
import json
import math
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gem_core.errors import DataError

_RUNNER = str(Path(__file__).with_name("_code_runner.py"))
_MB = 1 << 20


class Limits(NamedTuple):
    """The resource limits of a program.

    Attributes:
        test_s: CPU seconds for one test. The wall seconds are three times as many, so that a busy
            machine does not fail a program and a sleeping program does not stop the grader.
        total_s: wall seconds for all tests of a program.
        memory_mb: address space of each process.
        file_mb: largest size of a file that it writes.
        processes: number of processes and threads that it may start.
        output_kb: largest output of one test.
    """

    test_s: float = 5.0
    total_s: float = 60.0
    memory_mb: int = 1024
    file_mb: int = 16
    processes: int = 64
    output_kb: int = 1024


class CodeVerdict(NamedTuple):
    """The verdict of the grader.

    Attributes:
        correct: whether every test was run and passed.
        passed: number of tests that passed.
        total: number of all tests.
        status: ``"passed"``, or why the first failing test failed: ``"wrong_answer"``,
            ``"error"``, ``"timeout"``, ``"output_limit"``, ``"killed"`` (memory), or
            ``"compile_error"``, ``"runner_died"`` for the whole program.
        error: the message of the failure, at most 200 characters.
    """

    correct: bool
    passed: int
    total: int
    status: str
    error: str = ""


def grade_code(
    code: str,
    tests: Sequence[Mapping[str, Any]],
    *,
    limits: Limits | None = None,
    stop_early: bool = True,
) -> CodeVerdict:
    """Run a Python program on its tests.

    Args:
        code: the program.
        tests: as `read_tests` returns them: ``{"input": text, "output": text}`` for a program
            that reads standard input, ``{"function": name, "args": [...], "output": value}`` for
            one that defines a function.
        limits: the resource limits; ``None`` = the defaults.
        stop_early: whether to stop at the first test that fails.
    """
    limits = limits or Limits()
    # A mark that the program cannot know in advance separates the result from its output.
    mark = secrets.token_hex(8)
    job = {
        "code": code.encode(errors="replace").decode(),
        "tests": [_without_output(test, mark) for test in tests],
        "limits": _rlimits(limits),
        "test_s": 3 * limits.test_s,
        "max_output": limits.output_kb << 10,
        "stop_early": stop_early,
    }
    results = _run(job, limits)
    if results is None:
        return CodeVerdict(False, 0, len(tests), "timeout", "all tests together took too long")
    if not results:
        return CodeVerdict(False, 0, len(tests), "runner_died")
    passed = 0
    status = "passed"
    error = ""
    for test, result in zip(tests, results, strict=False):
        if result["status"] == "ok" and _matches(result["output"], test):
            passed += 1
        elif status == "passed":
            status = "wrong_answer" if result["status"] == "ok" else str(result["status"])
            error = str(result.get("error", ""))
    return CodeVerdict(passed == len(tests), passed, len(tests), status, error)


def read_tests(cell: Any) -> list[dict[str, Any]]:
    """Return the tests of a cell of a data set, in any of the usual forms.

    Known are ``{"inputs": [...], "outputs": [...], "fn_name": optional}`` (APPS, TACO), lists of
    ``{"input": ..., "output": ..., "type": "stdin_stdout" | "function_call", "fn_name": ...}``, and
    the JSON text of either. If the input of a function is a text, each of its lines is one argument
    in JSON, and the output is JSON too (LiveCodeBench); else both are values.

    Raises:
        DataError: it has another form.
    """
    if isinstance(cell, str):
        try:
            cell = json.loads(cell)
        except ValueError as error:
            raise DataError(f"The tests are neither JSON nor a list: {error}.") from None
    if isinstance(cell, Mapping) and "inputs" in cell and "outputs" in cell:
        name = cell.get("fn_name")
        inputs = cell["inputs"]
        outputs = cell["outputs"]
        if not (_is_list(inputs) and _is_list(outputs)):
            raise DataError(f"'inputs' and 'outputs' must be lists: {cell!r:.100}.")
        if len(inputs) != len(outputs):
            raise DataError(f"There are {len(inputs)} inputs but {len(outputs)} outputs.")
        pairs = zip(inputs, outputs, strict=True)
        cell = [{"input": i, "output": o, "fn_name": name} for i, o in pairs]
    if not isinstance(cell, Sequence) or isinstance(cell, str) or not cell:
        raise DataError(f"These are not tests: {cell!r:.100}.")
    return [_test(entry) for entry in cell]


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _test(entry: Any) -> dict[str, Any]:
    if not isinstance(entry, Mapping) or not {"input", "output"} <= set(entry):
        raise DataError(f"A test needs 'input' and 'output': {entry!r:.100}.")
    name = entry.get("fn_name")
    if name:
        arguments = entry["input"]
        output = entry["output"]
        if isinstance(arguments, str):  # then both are written down, one argument per line
            lines = [line for line in arguments.splitlines() if line.strip()]
            arguments = [_value(line, "An argument") for line in lines]
            if isinstance(output, str):
                output = _value(output, "The output")
        if not isinstance(arguments, list | tuple):
            raise DataError(f"The input of a function must be a list: {arguments!r:.60}.")
        return {"function": name, "args": list(arguments), "output": output}
    return {"input": _text(entry["input"]), "output": _text(entry["output"])}


def _value(text: str, what: str) -> Any:
    """Return the value that a text is: JSON, or else a literal of Python."""
    try:
        return json.loads(text)
    except ValueError as error:
        try:
            return json.loads(json.dumps(ast.literal_eval(text.strip())))
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            raise DataError(f"{what} of a test is not JSON: {text!r:.60} ({error}).") from None


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "\n".join(map(str, value))
    return str(value)


def _without_output(test: Mapping[str, Any], mark: str) -> dict[str, Any]:
    return {**{k: v for k, v in test.items() if k != "output"}, "mark": mark}


def _matches(output: str, test: Mapping[str, Any]) -> bool:
    if "function" not in test:
        return same_output(output, test["output"])
    try:
        value = json.loads(output)
    except (ValueError, RecursionError):  # a number of too many digits, a list nested too deep
        return False
    expected = test["output"]
    # APPS and TACO wrap some expected results in a list.
    wrapped = isinstance(expected, list) and len(expected) == 1 and _close(value, expected[0])
    return _close(value, expected) or wrapped


def same_output(output: str, expected: str) -> bool:
    r"""Return whether two outputs are equal, except for whitespace at the ends of lines.

    Numbers that differ by rounding (relative 1e-9, absolute 1e-6) are equal.

    >>> same_output("1 2 \n3\n\n", "1 2\n3"), same_output("0.50000000001", "0.5")
    (True, True)
    """
    ours = [line.split() for line in output.rstrip().splitlines()]
    theirs = [line.split() for line in expected.rstrip().splitlines()]
    if ours == theirs:
        return True
    return len(ours) == len(theirs) and all(
        _same_line(words, expected_words)
        for words, expected_words in zip(ours, theirs, strict=True)
    )


def _same_line(words: list[str], expected: list[str]) -> bool:
    if len(words) != len(expected):
        return False
    return all(a == b or _close_words(a, b) for a, b in zip(words, expected, strict=True))


def _close_words(a: str, b: str) -> bool:
    if "." not in a and "." not in b:
        return False
    try:
        return math.isclose(float(a), float(b), rel_tol=1e-9, abs_tol=1e-6)
    except ValueError:
        return False


def _close(a: Any, b: Any) -> bool:
    if isinstance(a, float) or isinstance(b, float):
        if not (isinstance(a, int | float) and isinstance(b, int | float)):
            return False
        try:
            return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-6)
        except OverflowError:  # an integer beyond all floats
            return False
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_close(one, other) for one, other in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_close(a[key], b[key]) for key in a)
    return type(a) is type(b) and bool(a == b)


def _rlimits(limits: Limits) -> dict[str, int]:
    return {
        "RLIMIT_AS": limits.memory_mb * _MB,
        "RLIMIT_FSIZE": limits.file_mb * _MB,
        # The CPU time of a fork starts at zero, so this limit holds for each test.
        "RLIMIT_CPU": math.ceil(limits.test_s),
        # As the superuser, the runner becomes a new user, who has no processes yet.
        "RLIMIT_NPROC": (_user_processes() if os.getuid() else 1) + limits.processes,
        "RLIMIT_CORE": 0,
        "RLIMIT_NOFILE": 256,
    }


def _run(job: dict[str, Any], limits: Limits) -> list[dict[str, Any]] | None:
    """Return the runner's results; ``[]`` if it died, ``None`` if it exceeded the deadline."""
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
            body = _exchange(process, json.dumps(job).encode(), limits)
        finally:
            end_tree(process)
    if body is None:
        return None
    try:
        results: list[dict[str, Any]] = json.loads(body)
    except ValueError:
        return []
    return results


def _exchange(process: subprocess.Popen[bytes], job: bytes, limits: Limits) -> bytes | None:
    assert process.stdin is not None and process.stdout is not None
    until = time.monotonic() + limits.total_s
    with contextlib.suppress(BrokenPipeError), process.stdin:
        process.stdin.write(job)
    reply = b""
    most = 4 * (limits.output_kb << 10) * 64
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
