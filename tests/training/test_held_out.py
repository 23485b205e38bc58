"""The profile `learn` evaluates every baseline on tasks that its training does not play."""

from __future__ import annotations

import pytest

from gem_core.evaluation.criterion import MIN_TASKS
from gem_core.runs.recipe.files import read_own_profile
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.recipe.suite import load_suite
from gem_core.runs.task_overlap import task_overlap

PROFILE = "learn"
SUITE = [baseline.name for baseline in load_suite()]
MISSING = frozenset(
    {
        "mastermind-easy",
        "letter-counting",
    }
)
"""Baselines without a table `[profiles.learn]` of their own, which this list loses one by one."""


def with_a_table() -> list[str]:
    return [name for name in SUITE if read_own_profile(name, PROFILE)]


def test_the_list_of_missing_tables_is_exact():
    missing = set(SUITE) - set(with_a_table())
    assert not MISSING - missing, (
        f"{sorted(MISSING - missing)} have a table [profiles.{PROFILE}]: remove them from MISSING "
        "in tests/training/test_held_out.py."
    )
    assert not missing - MISSING, (
        f"{sorted(missing - MISSING)} have no table [profiles.{PROFILE}]: write it."
    )


@pytest.mark.parametrize("name", with_a_table())
def test_no_evaluation_task_is_trained_on(name):
    counts = task_overlap(load_recipe(name, PROFILE, ["seed=100"]))
    assert counts is not None, f"{name}: its environment may block, so nothing is compared."
    assert counts["compared"] == counts["training_tasks"]
    assert counts["seen_in_training"] == 0
    assert counts["distinct"] >= MIN_TASKS
