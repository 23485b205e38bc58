"""Programs that pass, fail, hang, flood, fork and lie."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from gem_core.errors import DataError
from gem_core.graders.code import Limits, grade_code, read_tests, same_output

ADD = [{"input": "1 2\n", "output": "3\n"}, {"input": "5 6\n", "output": "11\n"}]
RIGHT = "a, b = map(int, input().split())\nprint(a + b)\n"
QUICK = Limits(test_s=1, total_s=30)


def runners() -> list[int]:
    """The runner processes that are alive."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                alive = " Z " not in (entry / "stat").read_text()
                if alive and f"_code_runner.py\0{os.getpid()}" in (entry / "cmdline").read_text():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


@pytest.mark.parametrize(
    ("program", "status"),
    [
        (RIGHT, "passed"),
        (RIGHT.replace("+", "-"), "wrong_answer"),
        ("print(3)", "wrong_answer"),
        ("def f(:", "compile_error"),
        ("\x00", "compile_error"),
        ("\ud800", "compile_error"),
        ("(" * 100_000, "compile_error"),
        ("raise ValueError('no')", "error"),
        ("import sys; sys.exit(1)", "error"),
        ("import sys; sys.exit(0)", "wrong_answer"),
        ("import os; os._exit(0)", "wrong_answer"),
        ("a = [0] * 10**10", "error"),
        ("def f(n): return f(n + 1)\nf(0)", "error"),
        ("while True: pass", "timeout"),
        ("import time; time.sleep(1000)", "timeout"),
        ("while True: print('x' * 10**6)", "output_limit"),
        ("import os, signal; os.kill(os.getppid(), signal.SIGKILL)", "runner_died"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed"),
        ("open('f', 'wb').write(bytes(64 << 20))", "error"),
        ("open('/tmp/gem-core-code-test', 'x')\nraise SystemExit(1)", "error"),
    ],
)
def test_what_a_program_does_is_named(program: str, status: str) -> None:
    verdict = grade_code(program, ADD, limits=QUICK)
    assert verdict.status == status, verdict
    assert verdict.correct is (status == "passed")
    assert verdict.total == 2 and len(verdict.error) <= 200
    Path("/tmp/gem-core-code-test").unlink(missing_ok=True)
    assert runners() == []


DETACHED = """
import os, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.close(1)
        time.sleep(1000)
a, b = map(int, input().split())
print(a + b)
"""


def test_detached_descendants_are_ended_and_do_not_hold_up_the_verdict() -> None:
    assert grade_code(DETACHED, ADD, limits=QUICK).correct
    assert runners() == []


def test_a_child_that_keeps_the_output_open_is_a_timeout() -> None:
    program = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(1000)\n" + RIGHT
    assert grade_code(program, ADD, limits=QUICK).status == "timeout"
    assert runners() == []


# At most 2**9 processes, should the limit not hold.
BOMB = "import os\nfor _ in range(9): os.fork()\n"


def test_a_fork_bomb_is_contained() -> None:
    verdict = grade_code(BOMB + RIGHT, ADD, limits=QUICK._replace(processes=16))
    assert not verdict.correct and "unavailable" in verdict.error
    assert runners() == []


def test_a_program_cannot_fake_the_result() -> None:
    test = [{"function": "add", "args": [1, 2], "output": 3}]
    fakes = (
        "import os\nos.write(1, b'3')\nos._exit(0)",
        "import os\nfor d in range(3, 64):\n  try: os.write(d, b'[]')\n  except OSError: pass\n",
    )
    assert grade_code("def add(a, b): return a + b", test, limits=QUICK).correct
    for fake in fakes:
        assert not grade_code(fake, test, limits=QUICK).correct


def test_function_calls() -> None:
    tests = read_tests(
        [{"input": [[3, 1, 2]], "output": [1, 2, 3], "fn_name": "f", "type": "function_call"}]
    )
    assert grade_code("def f(a):\n    print('noise')\n    return sorted(a)", tests).correct
    assert grade_code("class Solution:\n    def f(self, a): return tuple(sorted(a))", tests).correct
    assert not grade_code("def f(a): return a", tests).correct
    assert grade_code("def g(a): return a", tests).status == "error"
    assert grade_code("def f(a): return {1, 2, 3}.__class__", tests).status == "error"


@pytest.mark.parametrize(
    "result",
    [
        "10**400",  # beyond all floats
        "__import__('sys').set_int_max_str_digits(0) or 10**5000",
        "functools.reduce(lambda inner, _: [inner], range(3000), [])",
        "float('nan')",
        "'\\ud800'",
        "{1: 2}",
    ],
)
def test_results_that_cannot_be_compared_are_wrong(result: str) -> None:
    program = f"import functools\ndef f(): return {result}"
    for expected in (0.5, 7, [1], "x"):
        test = [{"function": "f", "args": [], "output": expected}]
        assert not grade_code(program, test, limits=QUICK).correct


def test_all_tests_are_run_if_asked() -> None:
    tests = [{"input": str(n), "output": str(n % 2)} for n in range(6)]
    verdict = grade_code("input(); print(0)", tests, stop_early=False)
    assert (verdict.passed, verdict.total, verdict.status) == (3, 6, "wrong_answer")


def test_tests_do_not_see_each_other() -> None:
    program = "import os\nprint(len(os.environ.get('SEEN', '')))\nos.environ['SEEN'] = 'x'\n"
    assert grade_code(program, [{"input": "", "output": "0"}] * 3).correct


def test_many_at_once() -> None:
    verdicts: list[bool] = []

    def work(number: int) -> None:
        test = [{"input": str(number), "output": str(number * 2)}]
        verdicts.append(grade_code("print(int(input()) * 2)", test).correct)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verdicts == [True] * 6


@pytest.mark.parametrize(
    ("cell", "first"),
    [
        ({"inputs": ["1\n"], "outputs": ["2\n"]}, {"input": "1\n", "output": "2\n"}),
        ('{"inputs": ["1\\n"], "outputs": ["2\\n"]}', {"input": "1\n", "output": "2\n"}),
        ({"inputs": [["1", "2"]], "outputs": [["3"]]}, {"input": "1\n2", "output": "3"}),
        (
            {"inputs": [[1, [2]]], "outputs": [3], "fn_name": "f"},
            {"function": "f", "args": [1, [2]], "output": 3},
        ),
        (
            [{"type": "function_call", "fn_name": "f", "input": "1\n[2]", "output": 3}],
            {"function": "f", "args": [1, [2]], "output": 3},
        ),
    ],
)
def test_the_usual_forms_of_tests(cell: object, first: dict[str, object]) -> None:
    assert read_tests(cell)[0] == first


@pytest.mark.parametrize(
    "cell",
    [
        *("nonsense", [], {}, [{"input": "1"}], 7, [7], ["1"], None, "null"),
        {"inputs": ["1", "2"], "outputs": ["1"]},
        {"inputs": 1, "outputs": 2},
        [{"input": "not json", "output": 1, "fn_name": "f"}],
        [{"input": 5, "output": 1, "fn_name": "f"}],
    ],
)
def test_other_forms_are_refused(cell: object) -> None:
    with pytest.raises(DataError):
        read_tests(cell)


def test_outputs_are_compared_like_a_judge_does() -> None:
    assert same_output("1  2\r\n3\n\n", "1 2\n3")
    assert same_output("0.3333333333", "0.333333333333")
    assert not same_output("1\n2", "1 2")
    assert not same_output("1", "1.0001")
    assert not same_output("", "0")
