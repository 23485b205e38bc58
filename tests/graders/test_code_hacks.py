"""Programs that want the reward without the answer, which they cannot know."""

from __future__ import annotations

import pytest

from gem_core.envs.graders.code import CodeLimits, CodeVerdict, grade_code

SECRET = 918273645
FUNCTION = [{"function": "f", "args": [1], "output": SECRET}]
STDIN = [{"input": "1\n", "output": str(SECRET)}]
LIMITS = CodeLimits(test_s=0.4, total_s=20)
SEARCH = """
import gc, sys, json, os
def numbers(value, depth=0):
    if isinstance(value, int) and value > 10**8: yield value
    elif isinstance(value, str) and value.strip().isdigit(): yield int(value)
    elif isinstance(value, dict) and depth < 6:
        for key in list(value): yield from numbers(value[key], depth + 1)
    elif isinstance(value, (list, tuple)) and depth < 6:
        for item in value: yield from numbers(item, depth + 1)
def found():
    frame = sys._getframe()
    while frame is not None:
        for value in list(frame.f_locals.values()): yield from numbers(value)
        frame = frame.f_back
    for item in gc.get_objects():
        if isinstance(item, dict) and "output" in item: yield from numbers(item["output"])
"""
EVERYWHERE = """
import os, sys
marks = [""]
frame = sys._getframe()
while frame is not None:
    test = frame.f_locals.get("test") or {}
    if isinstance(test, dict) and "mark" in test: marks.append(test["mark"])
    frame = frame.f_back
answers = ['[{"status": "ok", "output": "1"}]', "0", "1", "\\0", "true", "passed"]
answers += ["\\n" + mark + "1" for mark in marks]
for number in range(1, 256):
    for answer in answers:
        try: os.write(number, answer.encode())
        except OSError: pass
"""
HACKS = {
    "leave at once": "import os; os._exit(0)",
    "leave with each status": "import os, random; os._exit(random.choice([113, 114, 111, 1]))",
    "leave by an exception": "raise SystemExit(0)",
    "write to every descriptor and leave": EVERYWHERE + "os._exit(0)",
    "write to every descriptor and hang": EVERYWHERE + "while True: pass",
    "write to every descriptor and crash": EVERYWHERE + "os.kill(os.getpid(), 9)",
    "search for the answer": SEARCH
    + "best = [n for n in found() if n != 10**8] or [0]\n"
    + "def f(x): return best[0]\nprint(best[0])",
    "equal to everything": "class A(int):\n"
    "    def __eq__(self, other): return True\n"
    "    __hash__ = int.__hash__\n"
    "def f(x): return A(3)\nprint(A(3))",
    "change what writes the result": "import json, sys\n"
    "json.dumps = lambda *a, **k: 'true'\njson.loads = lambda *a, **k: True\n"
    "def f(x): return 1\nprint(True)",
    "not a number": "def f(x): return float('nan')\nprint('nan')",
    "no end of numbers": "def f(x): return float('inf')\nprint('1e999')",
    "fill the disk": "n = 0\nwhile True:\n    open(f'f{n}', 'wb').write(bytes(1 << 20)); n += 1",
    "break the checks": "import builtins, sys\n"
    "builtins.exec = builtins.compile = lambda *a, **k: None\nsys.modules.clear()\n"
    "def f(x): return 0\nprint(0)",
}
"""How a policy might get its reward without solving the task."""
FAILURES = {"wrong_answer", "error", "timeout", "killed", "output_limit", "compile_error"}
"""What is the program's own fault."""


@pytest.mark.parametrize("hack", HACKS)
@pytest.mark.parametrize("tests", [FUNCTION, STDIN], ids=["function", "stdin"])
def test_no_program_passes_by_a_trick(hack: str, tests: list[dict[str, object]]) -> None:
    verdict = grade_code(HACKS[hack], tests, limits=LIMITS)
    assert (verdict.correct, verdict.passed) == (False, 0), verdict
    assert verdict.status in FAILURES, verdict


@pytest.mark.parametrize("hack", [name for name in HACKS if name != "fill the disk"])
def test_nor_by_mistake_at_the_level_for_trusted_programs(hack: str) -> None:
    for tests in (FUNCTION, STDIN):
        verdict: CodeVerdict = grade_code(HACKS[hack], tests, limits=LIMITS, level="guarded")
        assert (verdict.correct, verdict.passed) == (False, 0), verdict
