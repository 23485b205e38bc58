"""Grade the answer to a mathematical question.

The verdict is that of math-verify. Answers of common kinds (numbers, simple expressions, lists of
them, words) are graded in this process in microseconds. The others are graded by worker processes
that import math-verify once, with a deadline, so that grading works in any thread and a comparison
that hangs only costs one worker.
"""

from __future__ import annotations

from collections import OrderedDict
from importlib.util import find_spec
from threading import Lock
from typing import NamedTuple

from gem_core.envs.graders._math_fast import fast_verdict
from gem_core.envs.graders.pool import WorkerError, shared_pool
from gem_core.errors import MissingDependencyError

_WORKER = "gem_core.envs.graders._math_slow:run"
DEADLINE_S = 5.0
"""Seconds for one comparison, after which the answer counts as wrong."""
MAX_CHARS = 2000
"""Longest answer that is read; a longer one counts as wrong."""
_REMEMBERED = 8192


class MathVerdict(NamedTuple):
    """The verdict of the grader.

    Attributes:
        correct: whether the answer is right.
        method: ``"plain"`` (graded without math-verify), ``"math-verify"``, or ``"none"`` if the
            answer could not be graded and therefore counts as wrong.
        error: why it could not be graded: ``"too_long"`` or the message of the worker.
    """

    correct: bool
    method: str
    error: str | None = None


def grade_math(
    answer: str, gold: str | list[str], *, deadline_s: float = DEADLINE_S
) -> MathVerdict:
    r"""Grade an answer (the content of the box, not the whole response).

    Args:
        answer: the answer, in LaTeX or plain text.
        gold: the right answer, or a list of right answers.
        deadline_s: seconds for each comparison that needs algebra.

    Raises:
        MissingDependencyError: the pair needs math-verify, which is not installed.

    >>> grade_math("0.5", r"\frac{1}{2}")
    MathVerdict(correct=True, method='plain', error=None)
    """
    if isinstance(gold, str):
        return _grade(answer, gold, deadline_s)
    verdict = MathVerdict(False, "none", "no gold answer")
    for one in gold:
        verdict = _grade(answer, one, deadline_s)
        if verdict.correct:
            break
    return verdict


def math_verify_installed() -> bool:
    """Return whether math-verify can be imported, without importing it."""
    return find_spec("math_verify") is not None


def require_math_verify() -> None:
    """Check that math-verify is installed.

    Raises:
        MissingDependencyError: it is not.
    """
    if not math_verify_installed():
        raise MissingDependencyError(
            "Grading answers that are not simple needs math-verify: pip install 'gem-core[math]'."
        )


_memory: OrderedDict[tuple[str, str], bool] = OrderedDict()
_memory_lock = Lock()


def _grade(answer: str, gold: str, deadline_s: float) -> MathVerdict:
    if len(answer) > MAX_CHARS:
        return MathVerdict(False, "none", "too_long")
    answer = answer.strip()
    gold = gold.strip()
    verdict = fast_verdict(answer, gold)
    if verdict is not None:
        return MathVerdict(verdict, "plain")
    pair = answer, gold
    with _memory_lock:
        verdict = _memory.get(pair)
    if verdict is None:
        require_math_verify()
        # A lone surrogate cannot be encoded, and no right answer contains one.
        job = [answer.encode(errors="replace").decode(), gold]
        try:
            verdict = bool(shared_pool(_WORKER).call(job, deadline_s))
        except WorkerError as error:
            return MathVerdict(False, "none", f"{error!s:.200}")
        _remember(pair, verdict)
    return MathVerdict(verdict, "math-verify")


def _remember(pair: tuple[str, str], verdict: bool) -> None:
    # The samples of a group often give the same answer.
    with _memory_lock:
        _memory[pair] = verdict
        if len(_memory) > _REMEMBERED:
            _memory.popitem(last=False)
