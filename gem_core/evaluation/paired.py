"""Two evaluations of the same tasks, compared task by task."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gem_core.errors import GemError
from gem_core.evaluation.folder import EvalDir
from gem_core.evaluation.intervals import clustered_interval
from gem_core.evaluation.rows import ItemRow

EXACT = 14
"""Up to this many tasks, all assignments of signs are counted."""
PERMUTATIONS = 20_000
"""Random assignments of signs for more tasks."""
_VALUES: dict[str, Callable[[ItemRow], float]] = {
    "success": lambda row: float(row.success),
    "reward": lambda row: row.reward,
}
Key = tuple[str, int]
"""Environment with its parameters and data, and seed: the same task in two evaluations."""


class Comparison(NamedTuple):
    """The difference of two evaluations in one metric, second minus first.

    Attributes:
        env: id of the environment; ``"all"`` for all of them together.
        metric: ``success`` or ``reward``.
        tasks: number of tasks that both have a result of.
        first: mean of the first one over these tasks.
        second: mean of the second one.
        difference: mean difference.
        low: lower end of its 95 % interval, by a bootstrap over tasks.
        high: upper end.
        p: two-sided p-value of a permutation test, which exchanges the two within tasks.
    """

    env: str
    metric: str
    tasks: int
    first: float
    second: float
    difference: float
    low: float
    high: float
    p: float


def compare(first: EvalDir, second: EvalDir) -> list[Comparison]:
    """Compare two evaluations on the tasks of which both have a result.

    Raises:
        GemError: they have no task in common.
    """
    ours = _by_task(first)
    theirs = _by_task(second)
    common = [key for key in ours if key in theirs]
    if not common:
        raise GemError(
            f"{first.path} and {second.path} have no task in common: evaluate both models on the "
            "same environments, parameters and data."
        )
    groups: dict[str, list[Key]] = defaultdict(list)
    for key in common:
        groups[key[0]].append(key)
    comparisons = []
    for metric, value in _VALUES.items():
        per_env = {
            env: _differences(keys, ours, theirs, value) for env, keys in sorted(groups.items())
        }
        if len(per_env) > 1:
            comparisons.append(_compare("all", metric, list(per_env.values())))
        for env, pairs in per_env.items():
            comparisons.append(_compare(json.loads(env)[0], metric, [pairs]))
    return comparisons


def sign_flip_p(differences: Sequence[float]) -> float:
    """Return the two-sided p-value that the mean of paired differences is not zero.

    If the two are exchangeable in each task, every sign of a difference is as likely as the other.
    Up to `EXACT` tasks all assignments are counted; else `PERMUTATIONS` random ones and the one
    that was observed, so that the p-value is valid and never 0.
    """
    values = np.asarray(differences, dtype=float)
    observed = abs(values.sum())
    close = 1e-9 * max(1.0, float(np.abs(values).sum()))
    if len(values) <= EXACT:
        bits = np.arange(2 ** len(values))[:, None] >> np.arange(len(values)) & 1
        return float(np.mean(np.abs((1 - 2 * bits) @ values) >= observed - close))
    rng = np.random.default_rng(0)
    extreme = 0
    step = max(1, 4_000_000 // len(values))
    for first in range(0, PERMUTATIONS, step):
        count = min(step, PERMUTATIONS - first)
        signs = rng.integers(0, 2, size=(count, len(values)), dtype=np.int8) * 2 - 1
        extreme += int(np.sum(np.abs(signs @ values) >= observed - close))
    return (extreme + 1) / (PERMUTATIONS + 1)


Pairs = list[tuple[float, float]]


def _compare(env: str, metric: str, groups: Sequence[Pairs]) -> Comparison:
    pairs = [pair for group in groups for pair in group]
    differences = [[b - a for a, b in group] for group in groups]
    flat = [value for group in differences for value in group]
    low, high = clustered_interval(differences)
    return Comparison(
        env,
        metric,
        len(pairs),
        float(np.mean([a for a, _ in pairs])),
        float(np.mean([b for _, b in pairs])),
        float(np.mean(flat)),
        low,
        high,
        sign_flip_p(flat),
    )


def _differences(
    keys: Sequence[Key],
    ours: Mapping[Key, list[ItemRow]],
    theirs: Mapping[Key, list[ItemRow]],
    value: Callable[[ItemRow], float],
) -> Pairs:
    return [
        (float(np.mean([value(r) for r in ours[k]])), float(np.mean([value(r) for r in theirs[k]])))
        for k in keys
    ]


def _by_task(folder: EvalDir) -> dict[Key, list[ItemRow]]:
    """Return the items with a result by their task."""
    names = _environments(folder)
    tasks: dict[Key, list[ItemRow]] = defaultdict(list)
    for row in folder.rows():
        if row.error is None:
            tasks[names[row.env], row.seed].append(row)
    return tasks


def _environments(folder: EvalDir) -> list[str]:
    """Return what identifies each environment: id, parameters, data, code, turn limit.

    Raises:
        RunError: it is not the directory of an evaluation.
    """
    folder.require()
    recorded: dict[str, Any] = {
        json.dumps([row["id"], row["kwargs"]], sort_keys=True): row["fingerprint"]
        for row in folder.run.info.get("environments", [])
    }
    names = []
    for config in folder.run.recipe.env:
        key = json.dumps([config.id, config.kwargs], sort_keys=True)
        names.append(json.dumps([config.id, config.max_turns, recorded.get(key, key)]))
    return names
