"""The checks by name, and how they are run: each passes, fails, or does not apply, with a reason.

A check is a function of a `Candidate` that returns what it found, in a line. It raises
`NotConforming` where the trainer fails, and `NotApplicable` where there is nothing to check. Any
other exception fails it, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from gem_conform import declared, measured, sampled, trained
from gem_conform.ahead import runs_ahead
from gem_conform.candidate import Candidate
from gem_conform.failures import NotApplicable, NotConforming
from gem_core.errors import error_line, no_exit, place_of, unknown

Check = Callable[[Candidate], str]
CHECKS: dict[str, Check] = {
    "declaration": declared.check_declaration,
    "keys": declared.check_keys,
    "values": declared.check_values,
    "unknown-keys": declared.check_unknown_keys,
    "turn-rewards": measured.check_turn_rewards,
    "gradient": measured.check_gradient,
    "recorded-runs": measured.check_recorded_runs,
    "injected-faults": measured.check_injected_faults,
    "refusal": trained.check_refusal,
    "result": trained.check_result,
    "repeat": trained.check_repeat,
    "sampling": sampled.check_sampling,
    "lockstep": measured.check_lockstep,
    "resume": trained.check_resume,
}
"""Name -> check, in the order in which they are run: what is cheap comes first."""


@dataclass(frozen=True)
class CheckOutcome:
    """What came of a check.

    Attributes:
        name: of the check.
        status: what came of it.
        reason: what it found, why it failed, or why there is nothing to check.
        seconds: it took.
    """

    name: str
    status: Literal["passed", "failed", "not applicable"]
    reason: str
    seconds: float


def describe(name: str) -> str:
    """Return the sentence of a check's docstring."""
    return (CHECKS[name].__doc__ or "").strip().partition("\n")[0].replace("`", "")


def choose(only: Collection[str]) -> list[str]:
    """Return the names of the checks to run, in their order; without any, all.

    Raises:
        UnknownNameError: there is no such check.
    """
    for name in only:
        if name not in CHECKS:
            raise unknown("check", name, CHECKS, f"There are: {', '.join(CHECKS)}.")
    return [name for name in CHECKS if not only or name in only]


def run_checks(candidate: Candidate, names: Collection[str]) -> Iterator[CheckOutcome]:
    """Yield what came of each check."""
    with runs_ahead(candidate, names):
        for name in names:
            began = time.perf_counter()
            status, reason = _run(CHECKS[name], candidate)
            yield CheckOutcome(name, status, reason, round(time.perf_counter() - began, 2))


def _run(
    check: Check, candidate: Candidate
) -> tuple[Literal["passed", "failed", "not applicable"], str]:
    try:
        with no_exit("it ended the program"):
            return "passed", check(candidate)
    except NotApplicable as why:
        return "not applicable", str(why)
    except NotConforming as why:
        return "failed", str(why)
    except Exception as error:  # of the trainer: it is what the report is for
        return "failed", f"{error_line(error)}{place_of(error)}"
