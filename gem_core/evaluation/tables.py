"""What an evaluation, a comparison and several evaluations look like as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gem_core.errors import GemError, RunError
from gem_core.evaluation.folder import PLAN, EvalDir
from gem_core.evaluation.paired import Comparison

Rows = list[tuple[str, ...]]
RESULT_HEAD = ("environment", "tasks", "success", "return", "turns", "errors")
COMPARISON_HEAD = ("environment", "metric", "tasks", "first", "second", "difference", "p")
_NONE = "-"
_SAME = ("@1/mean", "^1/mean")
"""pass@1 and pass^1 are the success, if all items have a result."""


def result_table(result: Mapping[str, Any]) -> tuple[tuple[str, ...], Rows]:
    """Return head and rows for one evaluation: its environments, then all of them together."""
    groups = [(entry["id"], entry["metrics"]) for entry in result["environments"]]
    if len(groups) > 1:
        groups.append(("all", result["metrics"]))
    passes = [
        name.removesuffix("/mean")
        for name in result["metrics"]
        if name.startswith("pass") and name.endswith("/mean") and name[4:] not in _SAME
    ]
    rows = []
    for name, metrics in groups:
        row = (
            name,
            f"{metrics['tasks']:.0f}",
            interval(metrics, "success"),
            interval(metrics, "reward"),
            _number(metrics, "turns/mean"),
            f"{metrics['errors']:.0f}",
        )
        rows.append((*row, *(interval(metrics, name) for name in passes)))
    return (*RESULT_HEAD, *passes), rows


def interval(metrics: Mapping[str, float], name: str) -> str:
    """Return a mean and its interval as ``0.510 [0.466, 0.554]``; ``-`` where there is none."""
    if f"{name}/mean" not in metrics:
        return _NONE
    low, high = metrics[f"{name}/low"], metrics[f"{name}/high"]
    return f"{metrics[f'{name}/mean']:.3f} [{low:.3f}, {high:.3f}]"


def _number(metrics: Mapping[str, float], name: str) -> str:
    return f"{metrics[name]:.2f}" if name in metrics else _NONE


def usage_lines(result: Mapping[str, Any]) -> list[str]:
    """Return lines about errors, requests, tokens and money."""
    said = result.get("first_errors", {})  # older results have none
    lines = [
        f"{count} items have no result: {kind}"
        + (f"; the first: {' '.join(said[kind].split())}" if kind in said else "")
        for kind, count in sorted(result["errors"].items())
    ]
    usage = result["usage"]
    if usage["requests"]:
        cost = "" if usage["cost"] is None else f", cost {usage['cost']:.4f}"
        lines.append(
            f"{usage['requests']} requests ({usage['retries']} repeated), "
            f"{usage['prompt_tokens']} prompt tokens ({usage['cached_tokens']} cached), "
            f"{usage['completion_tokens']} completion tokens "
            f"({usage['reasoning_tokens']} of thinking){cost}"
        )
    return lines


def comparison_rows(comparisons: Sequence[Comparison]) -> Rows:
    """Return the rows of a comparison."""
    return [
        (
            one.env,
            one.metric,
            str(one.tasks),
            f"{one.first:.3f}",
            f"{one.second:.3f}",
            f"{one.difference:+.3f} [{one.low:+.3f}, {one.high:+.3f}]",
            f"{one.p:.4f}" if one.p >= 1e-4 else "< 0.0001",
        )
        for one in comparisons
    ]


class FoundEvaluations(NamedTuple):
    """Finished evaluations, and lines that say which were left out as damaged."""

    evaluations: list[EvalDir]
    left_out: list[str]


def find_evaluations(folder: Path) -> FoundEvaluations:
    """Return the finished evaluations in a directory and below it; none that only scored again.

    Raises:
        GemError: there is none.
    """
    evaluations: list[EvalDir] = []
    left_out: list[str] = []
    for path in sorted(folder.rglob(PLAN)):
        one = EvalDir(path.parent)
        try:
            if one.run.finished and one.run.result.get("kind") == "evaluation" and one.started:
                evaluations.append(one)
        except RunError as error:
            left_out.append(str(error))
    if not evaluations:
        raise GemError(
            f"{folder} has no finished evaluation: make one with `gem-core eval ... --out DIR`."
        )
    return FoundEvaluations(evaluations, left_out)


def leaderboard(evaluations: Sequence[EvalDir]) -> tuple[tuple[str, ...], Rows]:
    """Return head and rows: a row per model, a column per environment, the best mean first.

    The mean is over the environments, and only of models that were evaluated on all of them. Of two
    evaluations of a model on one environment the later one is shown.
    """
    cells: dict[str, dict[str, Mapping[str, float]]] = {}
    by_time = sorted(evaluations, key=lambda one: one.started)
    for result in (one.run.result for one in by_time):
        for entry in result["environments"]:
            cells.setdefault(result["model"], {})[entry["id"]] = entry["metrics"]
    envs = sorted({env for metrics in cells.values() for env in metrics})
    ranked = sorted(cells, key=lambda model: (-_mean(cells[model], envs), model))
    rows = []
    for model in ranked:
        mean = _mean(cells[model], envs)
        shown = [interval(cells[model].get(env, {}), "success") for env in envs]
        rows.append((model, f"{mean:.3f}" if mean >= 0 else _NONE, *shown))
    return ("model", "mean", *envs), rows


def _mean(cells: Mapping[str, Mapping[str, float]], envs: Sequence[str]) -> float:
    """Return the mean success over all environments; -1 where one is missing."""
    values = [cells.get(env, {}).get("success/mean") for env in envs]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(envs) else -1.0
