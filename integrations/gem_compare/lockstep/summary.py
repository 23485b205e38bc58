"""The lockstep of one experiment as plain data, which is written as JSON and read by the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from gem_compare.lockstep.differences import BOUNDS, differences, drifts, rounding
from gem_compare.lockstep.divergence import Divergence, first_divergence
from gem_compare.lockstep.recipe import WHOLE_BATCHES
from gem_compare.lockstep.traces import Trace, digest, read_trace
from gem_compare.lockstep.weights import weight_difference
from gem_compare.results import CellResult

FORMAT = 1
"""Increase it when the meaning of a field changes."""
REQUIRED_STEPS = 15
"""Steps in which all trainers must draw the same tokens, if the run has as many."""
Summary = dict[str, Any]
MISMATCH = "rollout/logprob_difference"
SHOWN = ("success/mean", "reward/mean", MISMATCH, *BOUNDS)
"""The metrics that are kept of every step."""


def lockstep_cells(cells: Sequence[CellResult]) -> dict[tuple[str, str, int], list[CellResult]]:
    """Return the finished cells that can be compared token by token, by experiment.

    These are the ones that wrote whole batches; the key is baseline, algorithm and seed.
    """
    found: dict[tuple[str, str, int], list[CellResult]] = {}
    for cell in cells:
        if cell.result is not None and cell.run.recipe.train.log_episodes >= WHOLE_BATCHES:
            found.setdefault((cell.baseline, cell.algorithm, cell.seed), []).append(cell)
    return {key: members for key, members in sorted(found.items()) if len(members) > 1}


def summarize(cells: Sequence[CellResult]) -> Summary:
    """Compare the runs of one experiment.

    Args:
        cells: finished cells, one for each trainer.

    Raises:
        RunError: a run did not log its whole batches.
    """
    first = cells[0]
    recipe = first.run.recipe
    traces = {cell.trainer: read_trace(cell.run) for cell in cells}
    steps = range(1, recipe.train.steps + 1)
    return {
        "format": FORMAT,
        "baseline": first.baseline,
        "algorithm": first.algorithm,
        "seed": first.seed,
        "steps": recipe.train.steps,
        "episodes": recipe.batch.episodes,
        "updates_per_step": recipe.algorithm.epochs * recipe.algorithm.minibatches,
        "lr": recipe.algorithm.lr,
        "runs": {cell.trainer: _origin(cell) for cell in cells},
        "tokens": {name: [digest(t.batches[s]) for s in steps] for name, t in traces.items()},
        "sampled": [_count_tokens(traces[first.trainer], step) for step in steps],
        "metrics": {name: _metrics(name, traces, steps) for name in SHOWN},
        "pairs": [_pair(one, other, traces) for one, other in combinations(cells, 2)],
    }


def common_steps(summary: Summary) -> int:
    """Return for how many steps from the first all trainers drew the same tokens."""
    return min((pair["identical"] for pair in summary["pairs"]), default=0)


def cause(divergence: Mapping[str, Any], drift: Sequence[float | None]) -> str:
    """Return in words why two runs differ at a token, as far as the log-probabilities tell.

    Args:
        divergence: where they differ.
        drift: the largest difference of log-probabilities in each step before it.
    """
    if divergence["position"] < 0:
        return "NOT rounding: the prompts differ, and with them a task or an environment"
    gap = divergence["gap"]
    if gap is None:
        return "unknown, since a side has no log-probability there"
    sizes = [size for size in drift if size is not None]
    grown = f"; they differed by {sizes[-1]:.1e} in the step before" if sizes else ""
    if gap <= rounding(sizes):
        return f"rounding: a tie that log-probabilities decide which differ by {gap:.1e}{grown}"
    return f"NOT rounding: log-probabilities differ by {gap:.1e} or more{grown}"


def faults(summary: Summary) -> list[str]:
    """Return what is not explained by rounding, or parts trainers too early, one line each."""
    lines = []
    required = min(REQUIRED_STEPS, summary["steps"])
    for pair in summary["pairs"]:
        names = " and ".join(pair["trainers"])
        for row in pair["differences"]:
            if row["begins"] is not None:
                one, other = row["values"]
                what = f"{row['quantity']} differ from step {row['begins']}"
                lines.append(f"{names}: {what} by more than rounding: {one:.7g}, {other:.7g}")
        for divergence in divergences(pair):
            why = cause(divergence, drift_before(pair, divergence))
            if divergence["step"] <= required or not why.startswith("rounding"):
                lines.append(f"{names}: {describe(divergence)}; {why}")
    return lines


def divergences(pair: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return where two runs differ, in training and in the evaluations before that."""
    return [row for row in (pair["parting"], pair["evaluation_parting"]) if row is not None]


def drift_before(pair: Mapping[str, Any], divergence: Mapping[str, Any]) -> list[float | None]:
    """Return the drift of the steps before a divergence; an evaluation is played after its step."""
    steps = divergence["step"] - (divergence["split"] == "train")
    drift: list[float | None] = pair["drift"][:steps]
    return drift


def describe(divergence: Mapping[str, Any]) -> str:
    """Return in words where two runs differ."""
    split = "" if divergence["split"] == "train" else "the evaluation of "
    return (
        f"tokens differ at {split}step {divergence['step']}, episode {divergence['index']} (seed "
        f"{divergence['seed']}), turn {divergence['turn'] + 1}, token "
        f"{divergence['position'] + 1}; {divergence['episodes']} episodes of the step differ"
    )


def _pair(one: CellResult, other: CellResult, traces: Mapping[str, Trace]) -> dict[str, Any]:
    mine = traces[one.trainer]
    theirs = traces[other.trainer]
    divergence = first_divergence(mine, theirs, "train")
    identical = len(mine.batches) if divergence is None else divergence.step - 1
    steps = range(1, identical + 1)
    weights = weight_difference(one.run.model, other.run.model)
    return {
        "trainers": [one.trainer, other.trainer],
        "identical": identical,
        "parting": _plain(divergence),
        "evaluation_parting": _plain(_evaluation_divergence(mine, theirs, identical)),
        "evaluations": sum(step <= identical for step in mine.evaluations),
        "differences": [row.to_dict() for row in differences(mine, theirs, steps)],
        "drift": [drifts(mine, theirs, step) for step in steps],
        "weights": weights._asdict(),
    }


def _evaluation_divergence(one: Trace, other: Trace, identical: int) -> Divergence | None:
    """Return where the evaluations part that were played with weights that should be equal."""
    divergence = first_divergence(one, other, "eval")
    return divergence if divergence is not None and divergence.step <= identical else None


def _plain(divergence: Divergence | None) -> dict[str, Any] | None:
    return None if divergence is None else divergence.to_dict()


def _count_tokens(trace: Trace, step: int) -> int:
    return sum(episode.action_tokens for episode in trace.batches[step].values())


def _metrics(name: str, traces: Mapping[str, Trace], steps: range) -> dict[str, list[float | None]]:
    return {
        trainer: [trace.metrics.get(step, {}).get(name) for step in steps]
        for trainer, trace in traces.items()
    }


def _origin(cell: CellResult) -> dict[str, Any]:
    """Return what a run was made with."""
    assert cell.result is not None  # the caller passes only finished cells
    kept = ("versions", "python", "commit", "hardware")
    return {**{key: cell.result[key] for key in kept}, "train_s": cell.result["seconds"]["train"]}
