"""Is this the right answer to a mathematical question?

The verdict is math-verify's. Answers of common kinds (numbers, simple expressions, lists of them,
words) are judged here in microseconds; the rest goes to worker processes that import math-verify
once, under a deadline, so it works in any thread and a comparison that hangs costs one worker and
nothing else.
"""

from __future__ import annotations

from collections import OrderedDict
from importlib.util import find_spec
from threading import Lock
from typing import NamedTuple

from gem_core.errors import MissingDependencyError
from gem_core.graders._math_fast import fast_verdict
from gem_core.graders.pool import WorkerError, shared_pool

_WORKER = "gem_core.graders._math_slow:run"
#: Seconds that one comparison may take; then the answer counts as wrong.
DEADLINE_S = 5.0
#: A longer answer counts as wrong without being read.
MAX_CHARS = 2000
_REMEMBERED = 8192


class MathVerdict(NamedTuple):
    """What the grader says.

    Attributes:
        correct: Whether the answer is right.
        method: ``"plain"`` (judged without math-verify), ``"math-verify"``, or ``"none"`` if the
            answer could not be judged and therefore counts as wrong.
        error: Why it could not be judged: ``"too_long"`` or the message of the worker.
    """

    correct: bool
    method: str
    error: str | None = None


def grade_math(
    answer: str, gold: str | list[str], *, deadline_s: float = DEADLINE_S
) -> MathVerdict:
    r"""Judge an answer (what is in the box, not the whole response).

    Args:
        answer: The answer, in LaTeX or plain.
        gold: The right answer, or several of which any counts.
        deadline_s: Seconds for each comparison that needs algebra.

    Raises:
        MissingDependencyError: The pair needs math-verify, which is not installed.

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
    """Raise MissingDependencyError if math-verify is not installed."""
    if not math_verify_installed():
        raise MissingDependencyError(
            "Judging answers that are not plain and simple needs math-verify: "
            "pip install 'gem-core[math]'."
        )


_memory: OrderedDict[tuple[str, str], bool] = OrderedDict()
_memory_lock = Lock()


def _grade(answer: str, gold: str, deadline_s: float) -> MathVerdict:
    if len(answer) > MAX_CHARS:
        return MathVerdict(False, "none", "too_long")
    answer, gold = answer.strip(), gold.strip()
    verdict = fast_verdict(answer, gold)
    if verdict is not None:
        return MathVerdict(verdict, "plain")
    pair = answer, gold
    with _memory_lock:
        verdict = _memory.get(pair)
    if verdict is None:
        require_math_verify()
        # A lone surrogate cannot be encoded, and no right answer has one.
        job = [answer.encode(errors="replace").decode(), gold]
        try:
            verdict = bool(shared_pool(_WORKER).call(job, deadline_s))
        except WorkerError as error:
            return MathVerdict(False, "none", f"{error!s:.200}")
        _remember(pair, verdict)
    return MathVerdict(verdict, "math-verify")


def _remember(pair: tuple[str, str], verdict: bool) -> None:
    # Samples of one group often give the same answer, so it is worth it.
    with _memory_lock:
        _memory[pair] = verdict
        if len(_memory) > _REMEMBERED:
            _memory.popitem(last=False)
