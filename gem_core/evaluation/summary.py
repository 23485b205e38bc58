"""The metrics of an evaluation, from the rows of its items alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from gem_core.evaluation.intervals import clustered_interval
from gem_core.evaluation.pass_at_k import pass_at_k, pass_hat_k
from gem_core.evaluation.rows import ItemRow
from gem_core.policies.endpoint.usage import Usage

Metrics = dict[str, float]


def summarise_rows(rows: Sequence[ItemRow], samples: int) -> dict[str, Any]:
    """Return the summary of an evaluation.

    Means are over tasks: the samples of a task are averaged first. An item without a result is in
    none of them; ``errors`` counts it by its kind.

    Returns:
        ``metrics`` of all items, ``environments`` (one entry per environment: position, id,
        metrics), ``errors``, ``first_errors`` (the first message of each kind), ``usage``.
    """
    by_env: dict[int, list[ItemRow]] = defaultdict(list)
    for row in rows:
        by_env[row.env].append(row)
    environments = [
        {"env": env, "id": by_env[env][0].env_id, "metrics": metrics_of([by_env[env]], samples)}
        for env in sorted(by_env)
    ]
    usage = Usage()
    for row in rows:
        if row.usage is not None:
            usage.add(row.usage)
    return {
        "metrics": metrics_of([by_env[env] for env in sorted(by_env)], samples),
        "environments": environments,
        "errors": dict(Counter(row.error.kind for row in rows if row.error is not None)),
        "first_errors": _first_errors(rows),
        "usage": {name: getattr(usage, name) for name in usage.__struct_fields__},
    }


def _first_errors(rows: Sequence[ItemRow]) -> dict[str, str]:
    """Return the message of the first item with each kind of error."""
    first: dict[str, str] = {}
    for row in rows:
        if row.error is not None:
            first.setdefault(row.error.kind, row.error.message)
    return first


def metrics_of(groups: Sequence[Sequence[ItemRow]], samples: int) -> Metrics:
    """Return the metrics of the items of some environments, one group per environment.

    Only counts where no item has a result.
    """
    tasks = [_tasks(group) for group in groups]
    results = [row for group in groups for row in group if row.error is None]
    metrics: Metrics = {
        "items": float(sum(len(group) for group in groups)),
        "episodes": float(len(results)),
        "errors": float(sum(len(group) for group in groups) - len(results)),
        "tasks": float(sum(len(group) for group in tasks)),
    }
    if not results:
        return metrics
    _add(metrics, "success", [[_mean(r.success for r in t) for t in group] for group in tasks])
    rewards = [[_mean(r.reward for r in t) for t in group] for group in tasks]
    _add(metrics, "reward", rewards, proportion=False)
    every = [task for group in tasks for task in group]
    metrics["turns/mean"] = _mean(_mean(r.turns for r in task) for task in every)
    metrics["tokens/action"] = _mean(_mean(r.action_tokens for r in task) for task in every)
    metrics["time/item"] = _mean(row.seconds for row in results)
    metrics |= _tools(results)
    for stop, count in sorted(Counter(row.stop for row in results).items()):
        metrics[f"stop/{stop}"] = count / len(results)
    for k in _sizes(samples):
        _add_passes(metrics, k, tasks)
    return metrics


def _tasks(rows: Iterable[ItemRow]) -> list[list[ItemRow]]:
    """Return the items with a result by task; a task without any is left out."""
    tasks: dict[int, list[ItemRow]] = defaultdict(list)
    for row in rows:
        if row.error is None:
            tasks[row.task].append(row)
    return [tasks[task] for task in sorted(tasks)]


def _add(
    metrics: Metrics, name: str, groups: Sequence[Sequence[float]], *, proportion: bool = True
) -> None:
    low, high = clustered_interval(groups, proportion=proportion)
    metrics[f"{name}/mean"] = _mean(value for group in groups for value in group)
    metrics[f"{name}/low"] = low
    metrics[f"{name}/high"] = high


def _add_passes(metrics: Metrics, k: int, tasks: Sequence[Sequence[Sequence[ItemRow]]]) -> None:
    """Add pass@k and pass^k of the tasks that have at least ``k`` results."""
    counts = [
        [(len(task), sum(row.success for row in task)) for task in group if len(task) >= k]
        for group in tasks
    ]
    if not any(counts):
        return
    for name, estimate in (("pass@", pass_at_k), ("pass^", pass_hat_k)):
        _add(metrics, f"{name}{k}", [[estimate(n, c, k) for n, c in group] for group in counts])


def _sizes(samples: int) -> list[int]:
    """Return the sizes of sets: powers of two, and all samples; none for a single sample.

    >>> _sizes(6)
    [1, 2, 4, 6]
    """
    powers = [2**p for p in range(samples.bit_length())]
    return [] if samples == 1 else sorted({*powers, samples})


def _tools(rows: Sequence[ItemRow]) -> Metrics:
    counted = [row for row in rows if row.tool_calls is not None]
    if not counted:
        return {}
    calls = sum(row.tool_calls or 0 for row in counted)
    return {
        "tool/calls": calls / len(counted),
        "tool/used": sum(bool(row.tool_calls) for row in counted) / len(counted),
        "tool/failed": sum(row.tool_failures for row in counted) / max(1, calls),
    }


def _mean(values: Iterable[float]) -> float:
    every = list(values)
    return float(sum(every) / len(every))
