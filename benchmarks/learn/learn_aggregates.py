"""Algorithms compared over all baselines and seeds, by `gem_core.evaluation.aggregates`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from learn_cells import LearnCell

from gem_core.evaluation.aggregates import (
    Table,
    interquartile_mean,
    performance_profile,
    probability_of_improvement,
    stratified_interval,
)
from gem_core.results import markdown_table

TITLES = {"rebn": "ReBN", "reinforce": "REINFORCE", "grpo": "GRPO", "ppo": "PPO"}
FIRST = "rebn"
"""The algorithm that the others are compared with."""
THRESHOLDS = (0.1, 0.3, 0.5, 0.7, 0.9)
TEXT = """\
## Algorithms

Over the baselines of which both algorithms have all of the seeds {seeds}. *IQM*: interquartile mean
of the sampled success; *better*: probability that a run of ReBN is better than one of the other
algorithm, mean over baselines. Intervals: 95 %, stratified bootstrap over the seeds.
"""
PROFILE_TEXT = """\
Performance profile: share of runs with a success above each value. Baselines of which every
algorithm has all seeds: {count}.
"""

ByAlgorithm = Mapping[str, Mapping[str, Sequence[LearnCell]]]
"""Algorithm -> baseline -> cells."""


def write_aggregates(algorithms: ByAlgorithm, seeds: Sequence[int]) -> str:
    """Return the section of the page.

    Args:
        algorithms: the cells of one trainer.
        seeds: those that a baseline must have to count.
    """
    whole = {name: complete(algorithms.get(name, {}), seeds) for name in TITLES}
    there = [name for name in TITLES if whole[name]]
    text = TEXT.format(seeds=f"{seeds[0]} to {seeds[-1]}")
    if not there:
        return f"{text}\nNo baseline has all of these seeds yet.\n"
    head = ("algorithm", "baselines", "IQM before", "IQM", "IQM of ReBN there", "ReBN better")
    rows = [aggregate_row(name, whole) for name in there]
    parts = [text, markdown_table(head, rows)]
    common = [name for name in whole[there[0]] if all(name in whole[other] for other in there)]
    if common:
        parts += [PROFILE_TEXT.format(count=len(common)), profile_table(there, whole, common)]
    return "\n".join(parts)


def complete(
    baselines: Mapping[str, Sequence[LearnCell]], seeds: Sequence[int]
) -> dict[str, list[LearnCell]]:
    """Return the baselines that have all of the seeds, with the cells of these."""
    found = {}
    for name, cells in sorted(baselines.items()):
        wanted = [cell for cell in cells if cell.seed in seeds]
        if len(wanted) == len(seeds):
            found[name] = wanted
    return found


def aggregate_row(name: str, whole: Mapping[str, Mapping[str, list[LearnCell]]]) -> list[str]:
    """Return the figures of an algorithm, and of the first on the same baselines."""
    mine = list(whole[name])
    row = [TITLES[name], str(len(mine))]
    row.append(with_interval(interquartile_mean, scores(whole[name], mine, before=True)))
    row.append(with_interval(interquartile_mean, scores(whole[name], mine)))
    common = [baseline for baseline in mine if baseline in whole[FIRST]]
    if name == FIRST or not common:
        return [*row, "-", "-"]
    first = scores(whole[FIRST], common)
    row.append(with_interval(interquartile_mean, first) + among(common, mine))
    other = scores(whole[name], common)
    return [*row, with_interval(probability_of_improvement, first, other)]


def among(common: Sequence[str], mine: Sequence[str]) -> str:
    """Say on how many baselines a figure is, where these are not all."""
    return "" if len(common) == len(mine) else f" on {len(common)}"


def profile_table(
    names: Sequence[str],
    whole: Mapping[str, Mapping[str, list[LearnCell]]],
    baselines: Sequence[str],
) -> str:
    """Return the share of runs above each threshold, a row for each algorithm."""
    rows = [
        (TITLES[name], *(f"{share:.2f}" for share in shares))
        for name in names
        for shares in [performance_profile(scores(whole[name], baselines), THRESHOLDS)]
    ]
    return markdown_table(("algorithm", *(f"> {value}" for value in THRESHOLDS)), rows)


def scores(
    cells: Mapping[str, Sequence[LearnCell]], baselines: Sequence[str], before: bool = False
) -> Table:
    """Return the sampled success after training (or before), shape (seeds, baselines)."""
    texts = [
        [(cell.before if before else cell.after).sampled for cell in cells[name]]
        for name in baselines
    ]
    return np.array([[text.count("1") / len(text) for text in row] for row in texts]).T


def with_interval(statistic: Callable[..., float], *tables: Table) -> str:
    """Return a statistic with its interval."""
    low, high = stratified_interval(statistic, *tables)
    return f"{statistic(*tables):.3f} [{low:.3f}, {high:.3f}]"
