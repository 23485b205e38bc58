"""The section that compares ReBN with other estimators, on the page of `real_model_page`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from kept_runs import Kept, outcome_table
from msgspec.structs import replace

from gem_core.advantages import estimator_needs
from gem_core.errors import GemError
from gem_core.evaluation.criterion import compare
from gem_core.evaluation.outcomes import read_outcomes
from gem_core.results import markdown_table
from gem_core.runs.recipe.recipe import Recipe

REFERENCE = "rebn"
"""The estimator that the others are compared with."""
COLUMNS = (
    "estimator",
    "success in training, mean of all steps",
    "trained, sampled / greedy",
    "ReBN minus this, trained, sampled",
)
TEXT = """\
## Estimators

One recipe with several estimators; GRPO has groups of 8 episodes of a task in the same batch, and
no discount, which it ignores.
Differences are paired by task and seed, with 95 % intervals, which are not corrected for their
number. Before the training the runs of a seed are the same.
"""


def algorithms_section(groups: Sequence[Sequence[Kept]]) -> list[str]:
    """Return the section, and nothing where every recipe has one estimator.

    Args:
        groups: runs of one recipe, one for each seed.

    Raises:
        GemError: two runs that are compared differ in more than the estimator.
    """
    families: dict[tuple[str, ...], dict[str, Sequence[Kept]]] = {}
    for kept in groups:
        recipe = kept[0].run.recipe
        device = (recipe.hardware.device, recipe.hardware.engine)
        family = families.setdefault((recipe.name, kept[0].run.result["trainer"], *device), {})
        family[recipe.algorithm.estimator] = kept
    parts = [
        part
        for (name, trainer, *_), family in families.items()
        if len(family) > 1 and REFERENCE in family
        for part in _family(f"{name} in {trainer}", family)
    ]
    return [TEXT, *parts] if parts else []


def _family(title: str, family: dict[str, Sequence[Kept]]) -> list[str]:
    seeds = sorted(set.intersection(*({_seed(one) for one in kept} for kept in family.values())))
    if not seeds:
        raise GemError(f"{title}: the estimators have no seed in common.")
    runs = {
        name: sorted((one for one in kept if _seed(one) in seeds), key=_seed)
        for name, kept in family.items()
    }
    reference = replace(family[REFERENCE][0].run.recipe, seed=0)
    if any(
        _of_reference(one.run.recipe, reference) != reference
        for kept in runs.values()
        for one in kept
    ):
        raise GemError(f"{title}: the runs differ in more than the estimator and the group.")
    rows = [_row(name, runs[name], runs[REFERENCE]) for name in sorted(runs, key=_reference_first)]
    named = ", ".join(map(str, seeds))
    return [f"### {title}, seeds {named}\n", markdown_table(COLUMNS, rows)]


def _row(name: str, kept: Sequence[Kept], reference: Sequence[Kept]) -> tuple[str, ...]:
    steps = [[row["success/mean"] for row in one.run.metrics()] for one in kept]
    sampled, greedy = (_outcomes(kept, greedy) for greedy in (False, True))
    difference = ""
    if name != REFERENCE:
        found = compare(name, _outcomes(reference, False), sampled)
        difference = f"{found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"
    trained = f"{sampled.mean():.3f} / {greedy.mean():.3f}"
    return name, f"{np.mean(steps):.3f}", trained, difference


def _outcomes(kept: Sequence[Kept], greedy: bool) -> np.ndarray:
    return outcome_table([read_outcomes(one.run)["after", greedy].success for one in kept])


def _seed(one: Kept) -> int:
    return one.run.recipe.seed


def _reference_first(name: str) -> tuple[bool, str]:
    return name != REFERENCE, name


def _of_reference(recipe: Recipe, reference: Recipe) -> Recipe:
    """Return the recipe with the reference's estimator, and what its own one decides or ignores."""
    ignored = estimator_needs(recipe.algorithm.estimator).ignores
    keys = {key: getattr(reference.algorithm, key) for key in ("estimator", *ignored)}
    algorithm = replace(recipe.algorithm, **keys)
    batch = replace(recipe.batch, group_size=reference.batch.group_size)
    return replace(recipe, seed=0, algorithm=algorithm, batch=batch)
