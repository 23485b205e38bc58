"""Run a program on its tests.

Each test runs in a new process of the sandbox, at the strongest level of isolation
that the machine offers: see SECURITY.md for what each level promises. The level ``guarded``, by
name, is for programs that you trust: it prevents damage by mistakes (endless loops, fork bombs,
huge outputs), but a program then has access to the user's files and network.

A program can import Python's standard library and nothing else: no NumPy, nothing that is
installed. One that reads standard input imports what it uses. One that is tested by calling a
function need not import the names that coding sites provide, which
`gem_core.envs.graders._code_runner.PROVIDED` lists: ``List`` and the like of `typing`, the usual
ones of `bisect`, `collections`, `copy`, `functools`, `heapq`, `itertools`, `math`, `operator` and
`string`, these modules themselves, and `datetime`, `json`, `random`, `re` and `sys`. The
``ListNode`` and ``TreeNode`` of those sites are not there.
"""

from __future__ import annotations

import ast
import json
import math
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gem_core.envs.graders._code_runner import PROGRAM, PROVIDED
from gem_core.errors import DataError
from gem_core.execution.sandbox.backend import Backend
from gem_core.execution.sandbox.backends import get_shared_backend

_STATUSES = {
    "error": "error",
    "timeout": "timeout",
    "cpu_limit": "timeout",
    "output_limit": "output_limit",
    "disk_limit": "killed",
    "killed": "killed",
    "unavailable": "runner_died",
    "sandbox_died": "runner_died",
}  # fmt: skip
"""How the sandbox's errors are called here."""


class CodeLimits(NamedTuple):
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
            ``"error"``, ``"timeout"``, ``"output_limit"``, ``"killed"`` (memory, disk), or
            ``"compile_error"``, ``"runner_died"`` for the whole program.
        error: the message of the failure, at most 200 characters.
        level: the level of the sandbox under which it ran.
    """

    correct: bool
    passed: int
    total: int
    status: str
    error: str = ""
    level: str = ""


def grade_code(
    code: str,
    tests: Sequence[Mapping[str, Any]],
    *,
    limits: CodeLimits | None = None,
    stop_early: bool = True,
    level: str | None = None,
) -> CodeVerdict:
    """Run a Python program on its tests.

    Args:
        code: the program.
        tests: as `read_tests` returns them: ``{"input": text, "output": text}`` for a program
            that reads standard input, ``{"function": name, "args": [...], "output": value}`` for
            one that defines a function.
        limits: the resource limits; ``None`` = the defaults.
        stop_early: whether to stop at the first test that fails.
        level: the sandbox's level; ``None``: the variable ``GEM_CORE_SANDBOX``, or else the
            strongest that this machine offers.

    Raises:
        SandboxUnavailable: this machine does not offer the level.
    """
    limits = limits or CodeLimits()
    # Lone surrogates cannot be sent to another process.
    code = code.encode(errors="replace").decode()
    sandbox = get_shared_backend(level)
    results = _run_in(sandbox, code, tests, limits, stop_early)
    return _verdict(results, tests, sandbox.level)


def _verdict(
    results: list[dict[str, Any]] | None, tests: Sequence[Mapping[str, Any]], level: str
) -> CodeVerdict:
    total = len(tests)
    if results is None:
        error = "all tests together took too long"
        return CodeVerdict(False, 0, total, "timeout", error, level)
    if not results:
        return CodeVerdict(False, 0, total, "runner_died", "", level)
    passed = 0
    status = "passed"
    error = ""
    for test, result in zip(tests, results, strict=False):
        if result["status"] == "ok" and _matches(result["output"], test):
            passed += 1
        elif status == "passed":
            status = "wrong_answer" if result["status"] == "ok" else str(result["status"])
            error = str(result.get("error", ""))
    return CodeVerdict(passed == total, passed, total, status, error, level)


def _run_in(
    sandbox: Backend,
    code: str,
    tests: Sequence[Mapping[str, Any]],
    limits: CodeLimits,
    stop_early: bool,
) -> list[dict[str, Any]] | None:
    """Run each test in a process of its own; ``None``: they exceeded the deadline together."""
    until = time.monotonic() + limits.total_s
    results = []
    for test in tests:
        left = until - time.monotonic()
        if left <= 0:
            return None
        seconds = min(left, 3 * limits.test_s)
        result = _run_test(sandbox, code, test, limits, seconds)
        if result["status"] == "timeout" and seconds == left:
            return None
        results.append(result)
        if result["status"] == "compile_error" or (stop_early and not _has_passed(result, test)):
            break
    return results


def _has_passed(result: Mapping[str, Any], test: Mapping[str, Any]) -> bool:
    return result["status"] == "ok" and _matches(result["output"], test)


def _run_test(
    sandbox: Backend, code: str, test: Mapping[str, Any], limits: CodeLimits, seconds: float
) -> dict[str, Any]:
    # A mark that the program cannot know in advance separates the result from its output.
    mark = secrets.token_hex(8)
    job = {"code": code, "test": _without_output(test, mark), "provided": PROVIDED}
    result = sandbox.run(
        PROGRAM,
        stdin=test.get("input"),
        names={"job": job},
        limits=sandbox.limits._replace(
            seconds=seconds,
            cpu_s=limits.test_s,
            memory_mb=limits.memory_mb,
            threads=limits.processes,
            file_mb=limits.file_mb,
            disk_mb=4 * limits.file_mb,
            output_kb=limits.output_kb,
        ),
    )
    output = result.output
    if result.error is not None:
        if output.startswith(mark + "compile_error"):
            return {"status": "compile_error", "error": output[len(mark + "compile_error") :]}
        return {"status": _STATUSES[result.error], "error": output[-200:]}
    if "function" not in test:
        return {"status": "ok", "output": output}
    _, marked, value = output.rpartition("\n" + mark)
    if not marked:
        return {"status": "error", "error": "the function did not return"}
    return {"status": "ok", "output": value}


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
