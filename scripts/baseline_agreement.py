"""Two sections of ``docs/baselines.md``: do the trainers agree, and ReBN against REINFORCE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from same_steps import SameSteps, same_steps

from gem_compare.agreement import exchangeable
from gem_compare.power import smallest_deficit
from gem_compare.results import CellResult, mean_interval
from gem_core.evaluation.paired import sign_flip_p
from gem_core.results import markdown_table
from gem_core.runs.recipe.load import load_recipe

AGREE = """\
## Do the trainers agree?

All trainers draw the same tokens for the same task until rounding flips the first of them, from
where on two runs differ like runs of two seeds. *same steps*: the first training steps in which
success, reward, turns and sampled tokens of the whole batch are equal in all trainers of the line,
in five digits (four episodes of a step are kept, not all, so that this is not a comparison token by
token; `benchmarks/lockstep` has that for two baselines). *gradient norm*, *entropy*: their largest
relative difference between trainers in these steps. *gap*: the largest difference of the success
after training. ReBN, first seed.

verl has a line of its own, beside TRL, for it differs from the others early: when these runs were
made it moved the learning rate once per training step, the others with every optimizer step. The
runs have a cosine schedule and several epochs per step, so that from the second optimizer step on
verl's rate was a little higher. Since then the adapter moves verl's rate with every optimizer step.
"""
APART = "verl"
"""The trainer that is compared with TRL alone: its learning rate differed within a step."""
ALGORITHMS = """\
## ReBN against REINFORCE

Success after training in TRL, of the seeds that both algorithms have: mean over the seeds, and the
95 % interval of Student's t over them (none for a single seed; of two seeds it is wide).
*difference*: ReBN minus REINFORCE, in pairs. A baseline without a common seed has no line.
"""
_PAIR = ("rebn", "reinforce")
_LEARNER = "trl"
_Pair = tuple[list[int], list[float], list[float]]
"""Seeds, success with ReBN, success with REINFORCE."""


def agreement(
    names: Sequence[str], cells: Sequence[CellResult], constant: Sequence[CellResult]
) -> str:
    """Return the section on agreement: a line per baseline, and the test over all of them.

    Args:
        names: names of the baselines, in the order of the table.
        cells: their finished runs.
        constant: runs with a constant learning rate.
    """
    first = {name: _first_seed(name, cells) for name in names}
    rows = [
        _row(name, same_steps(runs))
        for name, line in first.items()
        for runs in _compared(line)
        if len(runs) > 1
    ]
    head = ("baseline", "trainers", "same steps", "gradient norm", "entropy", "gap")
    table = markdown_table(head, rows) if rows else "No baseline has runs of two trainers.\n"
    return f"{AGREE}\n{table}\n{_constant_rate(constant)}{_tests(list(first.values()))}"


def _constant_rate(cells: Sequence[CellResult]) -> str:
    """Return what runs of verl and TRL say whose learning rate is constant."""
    parts = []
    for name, algorithm in sorted({(cell.baseline, cell.algorithm) for cell in cells}):
        runs = [c for c in cells if (c.baseline, c.algorithm) == (name, algorithm)]
        line = same_steps(runs)
        parts.append(
            f"`{name}` ({algorithm}) {line.same} of {line.steps} same steps (gradient norm "
            f"{line.grad_norm:.0e}, entropy {line.entropy:.0e})"
        )
    if not parts:
        return ""
    return (
        "With `algorithm.lr_schedule=constant` and `train.steps=6`, verl and TRL have "
        f"{'; '.join(parts)}.\n\n"
    )


def _compared(line: Sequence[CellResult]) -> tuple[list[CellResult], list[CellResult]]:
    """Divide the runs of a baseline: those of the others, and those of verl and TRL."""
    others = [cell for cell in line if cell.trainer != APART]
    pair = [cell for cell in line if cell.trainer in (APART, _LEARNER)]
    return others, pair if len(pair) == len({APART, _LEARNER}) else []


def _first_seed(name: str, cells: Sequence[CellResult]) -> list[CellResult]:
    runs = [cell for cell in cells if (cell.baseline, cell.algorithm) == (name, "rebn")]
    seed = min((cell.seed for cell in runs), default=0)
    return [cell for cell in runs if cell.seed == seed]


def _row(name: str, line: SameSteps) -> tuple[str, ...]:
    if not line.same:
        return (f"`{name}`", ", ".join(line.trainers), f"0 of {line.steps}", "-", "-", _gap(line))
    drift = (f"{line.grad_norm:.0e}", f"{line.entropy:.0e}")
    same = f"{line.same} of {line.steps}"
    return (f"`{name}`", ", ".join(line.trainers), same, *drift, _gap(line))


def _gap(line: SameSteps) -> str:
    return f"{line.gap:.3f}"


def _tests(lines: Sequence[Sequence[CellResult]]) -> str:
    """Return what the permutation test says, of all trainers and of those with the same rate."""
    others = [[cell for cell in line if cell.trainer != APART] for line in lines]
    if sum(map(len, others)) == sum(map(len, lines)):
        return f"All trainers: {_test(lines)}"
    return f"All trainers: {_test(lines)}\nWithout {APART}, whose rate differs: {_test(others)}"


def _test(lines: Sequence[Sequence[CellResult]]) -> str:
    """Return what the permutation test says of the baselines that all trainers have finished."""
    trainers = sorted({cell.trainer for line in lines for cell in line})
    blocks = [
        [cell.result["after"]["success/mean"] for cell in _ordered(line) if cell.result]
        for line in lines
        if [cell.trainer for cell in _ordered(line)] == trainers
    ]
    if len(blocks) < 2 or len(trainers) < 2:
        return "Too few baselines are finished in all trainers for a test over them.\n"
    means = [fmean(column) for column in zip(*blocks, strict=True)]
    shown = ", ".join(f"{name} {mean:.3f}" for name, mean in zip(trainers, means, strict=True))
    deficit = smallest_deficit(blocks)
    found = "none would be found" if deficit is None else f"{deficit:.3f}"
    chance = exchangeable(blocks)
    shown_chance = "p < 0.01" if chance < 0.01 else f"p = {chance:.2f}"
    return (
        f"over the {len(blocks)} baselines that all {len(trainers)} trainers finished, the mean "
        f"success is {shown}. A permutation test of the trainers' names within baselines gives "
        f"{shown_chance}; the smallest deficit of one trainer that it would find "
        f"4 times in 5: {found}.\n"
    )


def _ordered(line: Sequence[CellResult]) -> list[CellResult]:
    return sorted(line, key=lambda cell: cell.trainer)


def algorithms(names: Sequence[str], cells: Sequence[CellResult]) -> str:
    """Return the section that compares the two algorithms; empty without a run of the second."""
    pairs = {name: pair for name in names if (pair := _pair(name, cells)) is not None}
    if not pairs:
        return ""
    rows = [_pair_row(name, *pair) for name, pair in pairs.items()]
    head = ("baseline", "seeds", *_PAIR, "difference")
    return f"{ALGORITHMS}\n{markdown_table(head, rows)}\n{_pooled(pairs)}"


def _pooled(pairs: Mapping[str, _Pair]) -> str:
    """Return the mean difference over the different environments, and what chance would give."""
    by_env: dict[str, list[float]] = {}
    for name, (_, rebn, reinforce) in pairs.items():
        env = load_recipe(name, "tiny").env[0]
        by_env.setdefault(repr((env.id, sorted(env.kwargs.items()))), []).extend(
            one - other for one, other in zip(rebn, reinforce, strict=True)
        )
    means = [fmean(differences) for differences in by_env.values()]
    chance = sign_flip_p(means)
    shown = "p < 0.01" if chance < 0.01 else f"p = {chance:.2f}"
    return (
        f"Over the {len(means)} different environments (some baselines are the same in this "
        f"profile) ReBN minus REINFORCE is {fmean(means):+.3f} in the mean; {shown}, if its sign "
        "in each environment were chance. The paper's Figure 1 has ReBN ahead, with large models; "
        "the tiny profile does not show that, and says nothing against it.\n"
    )


def _pair(name: str, cells: Sequence[CellResult]) -> _Pair | None:
    """Return the common seeds of both algorithms' runs of a baseline, and their success."""
    by_seed: dict[str, dict[int, float]] = {algorithm: {} for algorithm in _PAIR}
    runs = [cell for cell in cells if (cell.baseline, cell.trainer) == (name, _LEARNER)]
    for cell in runs:
        if cell.algorithm in by_seed and cell.result:
            by_seed[cell.algorithm][cell.seed] = cell.result["after"]["success/mean"]
    seeds = sorted(set.intersection(*map(set, by_seed.values())))
    if not seeds:
        return None
    rebn, reinforce = ([by_seed[algorithm][seed] for seed in seeds] for algorithm in _PAIR)
    return seeds, rebn, reinforce


def _pair_row(
    name: str, seeds: list[int], rebn: list[float], reinforce: list[float]
) -> tuple[str, ...]:
    difference = [one - other for one, other in zip(rebn, reinforce, strict=True)]
    figures = [_interval(values) for values in (rebn, reinforce, difference)]
    return (f"`{name}`", ", ".join(map(str, seeds)), *figures)


def _interval(values: Sequence[float]) -> str:
    mean, half = mean_interval(values)
    return f"{mean:.3f} ± {half:.3f}" if len(values) > 1 else f"{mean:.3f}"
