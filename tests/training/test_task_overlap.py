"""How many tasks of the evaluation are tasks of the training."""

from __future__ import annotations

import pytest

import gem_core
from gem_core.training import task_overlap as module
from gem_core.training.recipe import load_recipe
from gem_core.training.task_overlap import overlap_in_words, task_overlap

GUESS = "guess-the-number-easy"


class Blocking(gem_core.Env):
    """An environment of another package, which promises nothing."""

    def _reset(self, options):
        raise AssertionError("it must not be reset without a deadline")

    def _step(self, action):
        return "", 0.0, True, False, {}


class Fast(gem_core.Env):
    """One of 1,000,000 numbers, which the observation does not show."""

    fast = True
    _state_fields = ("number",)

    def _reset(self, options):
        self.number = self.rng.randrange(1_000_000)
        return "Guess.", {}

    def _step(self, action):
        return "", 0.0, True, False, {}


@pytest.mark.parametrize(
    ("baseline", "distinct", "seen"),
    [(GUESS, 10, 10), ("tower-of-hanoi-easy", 1, 1), ("sudoku-easy", 32, 0)],
)
def test_small_games_are_evaluated_on_tasks_of_the_training(baseline, distinct, seen):
    counts = task_overlap(load_recipe(baseline, "tiny"))
    assert (counts["distinct"], counts["seen_in_training"]) == (distinct, seen)


def test_what_training_does_not_play_is_not_counted_as_seen():
    small = ["train.steps=1", "batch.episodes=4", "batch.group_size=2", "eval.episodes=500"]
    counts = task_overlap(load_recipe(GUESS, "tiny", small))
    assert counts["episodes"] == 500 and counts["distinct"] == 10
    assert counts["training_tasks"] == counts["compared"] == 2
    assert 1 <= counts["seen_in_training"] <= 2


def test_a_limit_on_the_comparison_is_stated(monkeypatch):
    monkeypatch.setattr(module, "MAX_TRAINING_TASKS", 7)
    counts = task_overlap(load_recipe(GUESS, "tiny"))
    assert counts["compared"] == 7 and counts["training_tasks"] == 60 * 96
    assert overlap_in_words(counts).endswith("also in training (the first 7 tasks of it)")


def test_the_hidden_state_tells_tasks_apart_and_only_fast_environments_are_reset():
    gem_core.register("overlap:Fast-v0", f"{__name__}:Fast")
    gem_core.register("overlap:Blocking-v0", f"{__name__}:Blocking")
    fast = task_overlap(load_recipe(GUESS, "tiny", ["env=[{id='overlap:Fast-v0'}]"]))
    assert fast["distinct"] > 490 and fast["seen_in_training"] < 20
    blocking = task_overlap(load_recipe(GUESS, "tiny", ["env=[{id='overlap:Blocking-v0'}]"]))
    assert blocking is None and "not compared" in overlap_in_words(blocking)
