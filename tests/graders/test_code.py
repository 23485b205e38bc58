"""Programs that pass, fail, hang, print without end, fork, or claim success."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from gem_core.envs.code import find_fenced
from gem_core.envs.graders._code_runner import PROVIDED
from gem_core.envs.graders.code import CodeLimits, grade_code, read_tests, same_output
from gem_core.errors import DataError
from gem_core.execution.sandbox import get_shared_backend

ROOT = Path(__file__).resolve().parents[2]
ADD = [{"input": "1 2\n", "output": "3\n"}, {"input": "5 6\n", "output": "11\n"}]
RIGHT = "a, b = map(int, input().split())\nprint(a + b)\n"
QUICK = CodeLimits(test_s=1, total_s=30)
ROOMY = CodeLimits(test_s=20, total_s=60)
"""For programs that end by themselves, on a busy machine, too."""


@pytest.fixture(autouse=True, params=["guarded", None])
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """The level by name, and the strongest that the machine offers."""
    monkeypatch.delenv("GEM_CORE_SANDBOX", raising=False)
    if request.param:
        monkeypatch.setenv("GEM_CORE_SANDBOX", request.param)
    return request.param


def runners() -> list[int]:
    """The runner processes of the level 'guarded' that are alive."""
    process_ids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                alive = " Z " not in (entry / "stat").read_text()
                if (
                    alive
                    and f"_guarded_runner.py\0{os.getpid()}" in (entry / "cmdline").read_text()
                ):
                    process_ids.append(int(entry.name))
            except OSError:
                continue
    return process_ids


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
        ("import os, signal; os.kill(os.getppid(), signal.SIGKILL)", "error"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed"),
        ("open('f', 'wb').write(bytes(64 << 20))", "error"),
        ("open('/tmp/gem-core-code-test', 'x')\nraise SystemExit(1)", "error"),
    ],
)
def test_what_a_program_does_is_named(program: str, status: str, level: str | None) -> None:
    verdict = grade_code(program, ADD, limits=QUICK if status == "timeout" else ROOMY)
    if level == "guarded" and "getppid" in program:
        status = "killed"  # its own runner
    assert verdict.status == status, verdict
    assert verdict.level == (level or get_shared_backend().level)
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
    assert grade_code(DETACHED, ADD, limits=ROOMY, level="guarded").correct
    assert runners() == []
    refused = grade_code(DETACHED, ADD, limits=ROOMY, level=get_shared_backend("confined").level)
    assert refused.status == "error" and "not permitted" in refused.error


def test_a_child_that_keeps_the_output_open_is_a_timeout() -> None:
    program = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(1000)\n" + RIGHT
    assert grade_code(program, ADD, limits=QUICK, level="guarded").status == "timeout"
    assert runners() == []


# At most 2**9 processes if the limit fails. Those that it stops stay for a while: a process that
# ended at once would make room for another fork of the first one.
BOMB = """
import os, time
first = os.getpid()
for _ in range(9):
    try:
        os.fork()
    except OSError:
        if os.getpid() != first:
            time.sleep(1)
        raise
    time.sleep(0.02)
"""


def test_a_fork_bomb_is_contained() -> None:
    limits = QUICK._replace(processes=16)
    verdict = grade_code(BOMB + RIGHT, ADD, limits=limits, level="guarded")
    assert not verdict.correct and "unavailable" in verdict.error
    assert runners() == []


def test_a_program_cannot_fake_the_result() -> None:
    test = [{"function": "add", "args": [1, 2], "output": 3}]
    fakes = (
        "import os\nos.write(1, b'3')\nos._exit(0)",
        "import os\nfor d in range(3, 64):\n  try: os.write(d, b'[]')\n  except OSError: pass\n",
    )
    assert grade_code("def add(a, b): return a + b", test, limits=ROOMY).correct
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


LEETCODE = [
    {
        "type": "function_call",
        "fn_name": "twoSum",
        "input": "[2, 7, 11, 15]\n9",
        "output": "[0, 1]",
    },
    {"type": "function_call", "fn_name": "twoSum", "input": "[3, 3]\n6", "output": "[0, 1]"},
]
"""As LiveCodeBench writes its tests: arguments and result in JSON."""
TWO_SUM = """
class Solution:
    def twoSum(self, nums: List[int], target: int) -> Optional[List[int]]:
        place: Dict[int, int] = defaultdict(int)
        for i, number in enumerate(nums):
            if target - number in place:
                return [place[target - number], i]
            place[number] = i
"""


def test_written_down_results_are_read_like_arguments() -> None:
    assert read_tests(LEETCODE)[0] == {
        "function": "twoSum",
        "args": [[2, 7, 11, 15], 9],
        "output": [0, 1],
    }
    assert grade_code(TWO_SUM, read_tests(LEETCODE), limits=ROOMY).correct
    wrong = TWO_SUM.replace("place[target - number], i", "i, i")
    assert grade_code(wrong, read_tests(LEETCODE), limits=ROOMY).status == "wrong_answer"


@pytest.mark.parametrize(
    ("written", "result"),
    [
        ("true", "True"),
        ("null", "None"),
        ('"5"', "'5'"),
        ("5.0", "5"),
        ("{'a': [1, 2]}", "{'a': (1, 2.0)}"),
        ("(1, True)", "[1, True]"),
    ],
)
def test_any_written_result(written: str, result: str) -> None:
    tests = read_tests([{"fn_name": "f", "input": "", "output": written}])
    assert grade_code(f"def f(): return {result}", tests, limits=ROOMY).correct
    assert not grade_code(f"def f(): return {written!r}", tests, limits=QUICK).correct


def test_an_unreadable_result_is_an_error_of_the_data() -> None:
    with pytest.raises(DataError, match="The output of a test is not JSON: 'one two'"):
        read_tests([{"fn_name": "f", "input": "1", "output": "one two"}])
    # A list of arguments is a list of values, and so is its result.
    assert read_tests([{"fn_name": "f", "input": ["1"], "output": "one two"}])[0]["output"] == (
        "one two"
    )


@pytest.mark.parametrize(
    ("result", "expected", "correct"),
    [
        ("0.1 + 0.2", [0.3], True),  # wrapped, as in APPS
        ("1", [True], False),
        ("{'a': 0.1 + 0.2}", {"a": 0.3}, True),
        ("{'a': 1, 'b': 2}", {"a": 1}, False),
    ],
)
def test_results_within_others(result: str, expected: object, correct: bool) -> None:
    test = [{"function": "f", "args": [], "output": expected}]
    assert grade_code(f"def f(): return {result}", test, limits=ROOMY).correct is correct


@pytest.mark.parametrize("module", list(PROVIDED))
def test_names_that_need_no_import(module: str) -> None:
    for name in [module, *PROVIDED[module].split()]:
        program = f"def f(): return {name}.__doc__ is not None or True"
        assert grade_code(program, [{"function": "f", "args": [], "output": True}]).correct, name


def test_the_definitions_of_a_program_are_kept() -> None:
    program = "def gcd(a, b): return 7\nclass Solution:\n    def f(self): return gcd(2, 4)"
    assert grade_code(program, [{"function": "f", "args": [], "output": 7}]).correct


def test_nothing_but_the_standard_library_can_be_imported() -> None:
    tests = [{"input": "", "output": "ok"}]
    for module in ("pytest", "gem_core", "numpy"):
        verdict = grade_code(f"import {module}\nprint('ok')", tests, limits=ROOMY)
        assert verdict.status == "error" and "ModuleNotFoundError" in verdict.error
    modules = "xml.dom.minidom, concurrent.futures, sqlite3, decimal, encodings.cp1252, json.tool"
    assert grade_code(f"import {modules}\nprint('ok')", tests, limits=ROOMY).correct
    # A program that reads standard input imports what it uses.
    assert "NameError" in grade_code("print(gcd(2, 3))", tests, limits=ROOMY).error


@pytest.mark.parametrize("by_name", ["guarded", "confined"])
def test_the_rights_of_a_container_are_enough(by_name: str) -> None:
    """Docker leaves root without CAP_DAC_READ_SEARCH; Python may lie below a private folder."""
    program = f"""
import ctypes, sys
sys.path.insert(0, {str(ROOT)!r})
drop_from_bounding_set, dac_read_search = 24, 2
ctypes.CDLL(None).prctl(drop_from_bounding_set, dac_read_search, 0, 0, 0)
import os
if len(sys.argv) == 2:
    os.execv(sys.executable, [sys.executable, __file__, sys.argv[1], "again"])
from gem_core.envs.graders.code import grade_code
tests = [{{"input": "", "output": "3"}}]
verdict = grade_code("import xml.dom.minidom, sqlite3\\nprint(3)", tests, level=sys.argv[1])
print(verdict)
sys.exit(not verdict.correct)
"""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "grade.py"
        path.write_text(program)
        command = [sys.executable, path, by_name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_empty_block_does_not_replace_the_program() -> None:
    program = "```python\nprint(1)\n```"
    assert find_fenced(program) == "print(1)\n"
    assert find_fenced(f"{program}\nI put it in a block:\n```python\n\n```\n") == "print(1)\n"
    assert find_fenced("```\n\n```") is None
