"""Grade the answer to a mathematical question.

The verdict is that of math-verify. Worker processes grade, each answer with a deadline, so that
grading works in any thread and a comparison that hangs only costs one worker.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from typing import NamedTuple

from gem_core.envs.graders.pool import WorkerError, get_pool, require_pebble
from gem_core.errors import MissingDependencyError

_WORKER = "gem_core.envs.graders._math_verify:run"
DEADLINE_S = 5.0
"""Seconds for one comparison, after which the answer counts as wrong."""
MAX_CHARS = 2000
"""Longest answer that is read; a longer one counts as wrong."""


class MathVerdict(NamedTuple):
    """The verdict of the grader.

    Attributes:
        correct: whether the answer is right.
        method: ``"math-verify"``, or ``"none"`` if the answer could not be graded and therefore
            counts as wrong.
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
        deadline_s: seconds for each comparison.

    Raises:
        MissingDependencyError: math-verify or pebble is not installed.

    >>> grade_math("0.5", r"\frac{1}{2}")
    MathVerdict(correct=True, method='math-verify', error=None)
    """
    if isinstance(gold, str):
        return _grade(answer, gold, deadline_s)
    verdict = MathVerdict(False, "none", "no gold answer")
    for one in gold:
        verdict = _grade(answer, one, deadline_s)
        if verdict.correct:
            break
    return verdict


def require_math_verify() -> None:
    """Check that mathematical answers can be graded.

    Raises:
        MissingDependencyError: math-verify or pebble is not installed.
    """
    if find_spec("math_verify") is None:
        raise MissingDependencyError(
            "Grading mathematical answers needs math-verify: pip install 'gem-core[math]'."
        )
    require_pebble("math")


def _grade(answer: str, gold: str, deadline_s: float) -> MathVerdict:
    if len(answer) > MAX_CHARS:
        return MathVerdict(False, "none", "too_long")
    # A lone surrogate cannot be encoded, and no right answer contains one.
    answer = answer.encode(errors="replace").decode()
    try:
        return MathVerdict(_verdict(answer.strip(), gold.strip(), deadline_s), "math-verify")
    except WorkerError as error:
        return MathVerdict(False, "none", f"{error!s:.200}")


@lru_cache(maxsize=8192)  # the samples of a group often give the same answer
def _verdict(answer: str, gold: str, deadline_s: float) -> bool:
    require_math_verify()
    return bool(get_pool(_WORKER).call([answer, gold], deadline_s))
