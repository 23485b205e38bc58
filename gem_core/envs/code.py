"""``code:*`` and ``eval:CodeContest``: programs that must pass tests."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gem_core.envs.dataset import DatasetEnv
from gem_core.envs.graders.code import CodeLimits, grade_code, read_tests

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random
    from typing import Any, ClassVar

REWARDS = {"success": 1.0, "fail": 0.0, "format_error": -0.1}
_GEM_TESTS = 12
_FENCE = re.compile(r"^```[ \t]*([\w+.-]*)[ \t]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def find_fenced(text: str) -> str | None:
    """Return the content of the last complete fenced block that is not empty, or ``None``.

    >>> find_fenced("x\\n```python\\nprint(1)\\n```\\n")
    'print(1)\\n'
    """
    blocks = [content for _, content in _FENCE.findall(text) if content.strip()]
    return blocks[-1] if blocks else None


class CodeEnv(DatasetEnv):
    """A programming task; the reward is 1 if the program passes all tests, else 0.

    The program is the last fenced block of the action; without one the reward is -0.1, as in GEM.
    It runs in a child process with the standard library, under limits; see
    `gem_core.envs.graders.code`. ``info`` has ``passed``, ``total`` and ``status``.

    Args:
        max_tests: largest number of tests, those with the longest input; ``None``: all. With
            ``compat="gem-0.1.0"`` it is 12.
        test_s: CPU seconds for one test; the wall seconds are three times as many.
        total_s: wall seconds for all tests of a program.
        memory_mb: address space of the program.
        partial: whether the reward is the share of passed tests instead of all or nothing.
        **options: see `gem_core.envs.dataset.DatasetEnv`; ``answer_format`` has no meaning
            here.
    """

    slow = True
    roles: ClassVar[Mapping[str, str]] = {
        "question": "problem",
        "tests": "tests",
        "solution": "solution",
    }
    optional: ClassVar[frozenset[str]] = frozenset({"solution"})
    _rewards: Mapping[str, float] = REWARDS

    def __init__(
        self,
        *,
        max_tests: int | None = None,
        test_s: float = 5.0,
        total_s: float = 60.0,
        memory_mb: int = 1024,
        partial: bool = False,
        **options: Any,
    ):
        super().__init__(**options)
        if max_tests is not None and max_tests < 1:
            raise ValueError(f"max_tests must be at least 1, not {max_tests}.")
        self.max_tests = _GEM_TESTS if max_tests is None and self.compat else max_tests
        self.limits = CodeLimits(test_s=test_s, total_s=total_s, memory_mb=memory_mb)
        self.partial = partial
        self._parse = find_fenced
        self.answer_format = "fenced"

    def _load(self) -> None:
        super()._load()
        tests = read_tests(self._row["tests"])
        if self.max_tests is not None and len(tests) > self.max_tests:
            longest = sorted(range(len(tests)), key=lambda i: -_input_size(tests[i]))
            tests = [tests[i] for i in longest[: self.max_tests]]
        self._tests = tests

    def _score(self, answer: str) -> tuple[float, dict[str, Any]]:
        verdict = grade_code(answer, self._tests, limits=self.limits, stop_early=not self.partial)
        extra: dict[str, Any] = {
            "passed": verdict.passed,
            "total": verdict.total,
            "status": verdict.status,
        }
        share = verdict.passed / verdict.total if self.partial else 0.0
        return (1.0 if verdict.correct else share), extra

    def _instruction(self) -> str:
        return (
            "Write a Python program that imports nothing but the standard library. Put it in one "
            "fenced block, which must be the last one:\n"
            "```python\n# your program\n```"
        )

    def _write(self, content: str) -> str:
        return f"```python\n{content.rstrip()}\n```"

    def _solution(self) -> str:
        solution = self._row["solution"]
        if isinstance(solution, list):
            solution = solution[0] if solution else None
        if not isinstance(solution, str):
            raise NotImplementedError(f"{self!r}: the data have no solution of this item.")
        return solution

    def random_action(self, rng: Random) -> str:
        """Return a program that prints a number."""
        return self._write(f"print({rng.randint(0, 99)})")


def _input_size(test: Mapping[str, Any]) -> int:
    return len(test["input"]) if "input" in test else len(repr(test["args"]))
