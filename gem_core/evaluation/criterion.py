"""Whether a policy has learned: its success is above that of every control, task by task.

A cell is the runs of one recipe with one trainer and algorithm, one for each seed, all evaluated on
the same tasks. It *learns* if, on at least `MIN_TASKS` distinct tasks of which training played
none, the sampled policy's success is above each control's of
`gem_core.evaluation.controls.file.CONTROLS`.

Differences are paired: outcome of the policy minus outcome of the control, seed by seed and task by
task. Seeds and tasks are crossed random effects, since all seeds play the same tasks. The variance
of the mean is that of two-way clustering (A. C. Cameron, J. B. Gelbach, D. L. Miller, "Robust
inference with multiway clustering", Journal of Business & Economic Statistics 29, 2011): variance
of the seeds' means plus variance of the tasks' means, minus what both have of the remainder, and
not less than the larger of the two, nor than that of one task of all that differs. The quantile is
Student's t, with F. E. Satterthwaite's degrees of freedom (Biometrics Bulletin 2, 1946). A
bootstrap over seeds is not used: of three or five seeds it covers too little.

To be above each control is one claim, an intersection of five, so its p-value is the largest of the
five and needs no correction (R. L. Berger, Technometrics 24, 1982). Over the baselines that are
judged together the p-values are corrected by S. Holm's method (Scandinavian Journal of Statistics
6, 1979). A single seed says how the policy of that seed does on other tasks, and nothing of other
seeds; the verdict then says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gem_core.errors import GemError
from gem_core.evaluation.controls.file import CONTROLS
from gem_core.evaluation.student import quantile, upper_tail

LEVEL = 0.05
"""Chance, at most, that any cell of those judged together is said to learn and does not."""
MIN_TASKS = 100
"""Distinct tasks that an evaluation must have."""
Table: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
"""Share of successes, shape (seeds, tasks)."""


class ControlDifference(NamedTuple):
    """A policy minus a control.

    Attributes:
        control: name of the control.
        success: mean of the control.
        mean: mean difference.
        low: lower end of its two-sided 95 % interval over seeds and tasks.
        high: upper end.
        p: one-sided p-value of a difference of at most 0.
    """

    control: str
    success: float
    mean: float
    low: float
    high: float
    p: float


class Evidence(NamedTuple):
    """What is known of a cell.

    Attributes:
        success: mean of the trained policy, sampled.
        greedy: the same with the most likely tokens; ``None`` if it was not played.
        seeds: number of seeds.
        tasks: tasks of the evaluation.
        distinct: different ones among them.
        seen: of these, the tasks that training played, in the seed that has most.
        differences: one for each control.
    """

    success: float
    greedy: float | None
    seeds: int
    tasks: int
    distinct: int
    seen: int
    differences: tuple[ControlDifference, ...]

    @property
    def p(self) -> float:
        """P-value of being above every control, before Holm's correction."""
        return max(difference.p for difference in self.differences)


class CellVerdict(NamedTuple):
    """Whether a cell learns.

    Attributes:
        learns: whether it does.
        p: corrected p-value of being above every control.
        reasons: why it does not; empty if it learns.
        seeds: number of seeds; with 1 the verdict is about that seed alone.
    """

    learns: bool
    p: float
    reasons: tuple[str, ...]
    seeds: int

    def __str__(self) -> str:
        said = "learns" if self.learns else f"no: {'; '.join(self.reasons)}"
        return f"{said} (one seed)" if self.seeds == 1 else said


def weigh(
    trained: Table,
    controls: Mapping[str, Table],
    *,
    distinct: int,
    seen: int,
    greedy: Table | None = None,
) -> Evidence:
    """Compare the sampled policy of a cell with every control.

    Args:
        trained: outcomes of the trained policy, sampled.
        controls: outcomes of each control; of shape (1, tasks) where every seed has the same.
        distinct: different tasks of the evaluation.
        seen: of these, the tasks that training played.
        greedy: outcomes of the trained policy with the most likely tokens.

    Raises:
        GemError: a control is missing, or has other tasks or seeds.
    """
    missing = [name for name in CONTROLS if name not in controls]
    if missing:
        raise GemError(
            f"The criterion needs every control, and {', '.join(missing)} is missing: "
            "`gem-core controls` plays it; the model before training also needs eval.greedy."
        )
    return Evidence(
        success=float(trained.mean()),
        greedy=None if greedy is None else float(greedy.mean()),
        seeds=len(trained),
        tasks=trained.shape[1],
        distinct=distinct,
        seen=seen,
        differences=tuple(compare(name, trained, controls[name]) for name in CONTROLS),
    )


def compare(name: str, trained: Table, control: Table) -> ControlDifference:
    """Return the paired difference of a policy and a control, with its interval and p-value.

    Args:
        name: of the control.
        trained: shape (seeds, tasks).
        control: the same shape, or (1, tasks).

    Raises:
        GemError: they cannot be paired.
    """
    if control.shape not in (trained.shape, (1, *trained.shape[1:])) or trained.shape[1] < 2:
        raise GemError(
            f"{name} has outcomes of {control.shape} seeds and tasks, the policy of "
            f"{trained.shape}: evaluate both on the same tasks, at least two."
        )
    differences = trained - control
    mean = float(differences.mean())
    variance, freedom = variance_of_mean(differences)
    error = float(np.sqrt(variance))
    half = quantile(0.975, freedom) * error
    chance = upper_tail(mean / error, freedom)
    return ControlDifference(name, float(control.mean()), mean, mean - half, mean + half, chance)


def variance_of_mean(differences: Table) -> tuple[float, float]:
    """Return the variance of the mean over crossed seeds and tasks, and its degrees of freedom.

    With one seed it is the variance over tasks alone. The differences have the shape (seeds,
    tasks), with at least two tasks.
    """
    seeds, tasks = differences.shape
    of_tasks = float(differences.mean(axis=0).var(ddof=1)) / tasks
    least = 1 / tasks**2  # one task of all, in which the two differ
    if seeds == 1:
        return max(of_tasks, least), tasks - 1
    of_seeds = float(differences.mean(axis=1).var(ddof=1)) / seeds
    rest = differences - differences.mean(axis=0) - differences.mean(axis=1, keepdims=True)
    free = (seeds - 1) * (tasks - 1)
    remainder = float(((rest + differences.mean()) ** 2).sum()) / free / (seeds * tasks)
    variance = max(of_seeds + of_tasks - remainder, of_seeds, of_tasks, least)
    spread = of_seeds**2 / (seeds - 1) + of_tasks**2 / (tasks - 1) + remainder**2 / free
    freedom = variance**2 / spread if spread > 0 else float(tasks - 1)
    return variance, min(max(freedom, float(min(seeds, tasks) - 1)), float(free))


def judge(cells: Mapping[str, Evidence]) -> dict[str, CellVerdict]:
    """Say which cells learn, with Holm's correction over all of them.

    ``cells`` has the evidence of each that is judged, also of those that will not learn.
    """
    corrected = holm({name: evidence.p for name, evidence in cells.items()})
    verdicts = {}
    for name, evidence in cells.items():
        reasons = _reasons(evidence, corrected[name])
        verdicts[name] = CellVerdict(not reasons, corrected[name], reasons, evidence.seeds)
    return verdicts


def _reasons(evidence: Evidence, p: float) -> tuple[str, ...]:
    reasons = []
    if evidence.seen:
        reasons.append(f"{evidence.seen} of {evidence.distinct} tasks are trained on")
    if evidence.distinct < MIN_TASKS:
        reasons.append(f"{evidence.distinct} distinct tasks, fewer than {MIN_TASKS}")
    not_above = [d.control for d in evidence.differences if d.p > LEVEL]
    if not_above:
        reasons.append(f"not above {', '.join(not_above)}")
    elif p > LEVEL:
        reasons.append(f"above every control only before Holm's correction (p = {p:.2f})")
    return tuple(reasons)


def holm(chances: Mapping[str, float]) -> dict[str, float]:
    """Return p-values corrected by Holm's method, in the order given.

    >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
    {'a': 0.03, 'b': 0.06, 'c': 0.06}
    """
    corrected = {}
    highest = 0.0
    for rank, name in enumerate(sorted(chances, key=lambda name: chances[name])):
        highest = max(highest, min(1.0, (len(chances) - rank) * chances[name]))
        corrected[name] = highest
    return {name: corrected[name] for name in chances}
