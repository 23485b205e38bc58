"""How many tasks of the evaluation are tasks of the training."""

from __future__ import annotations

import json

import pytest

import gem_core
from gem_core.runs import task_overlap as module
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.task_overlap import overlap_in_words, task_overlap

GUESS = "guess-the-number-easy"
DATA = ["math:GSM8K", "qa:HotpotQA", "code:PrimeIntellect15k", "logic:RuleTaker-d2"]
DATA += ["eval:MATH500"]


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
    [(GUESS, 10, 10), ("tower-of-hanoi-easy", 1, 1), ("sudoku-easy", 293, 67)],
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


def test_other_environments_of_the_evaluation_are_compared():
    hard = ["eval.env.0.id=game:GuessTheNumber-v0-hard", "eval.episodes=200"]
    counts = task_overlap(load_recipe(GUESS, "tiny", hard))
    assert counts["distinct"] > 40 and counts["seen_in_training"] == 0
    # The same game in another place of another list is the same task.
    both = ["game:TowerofHanoi-v0-easy", "game:GuessTheNumber-v0-easy"]
    same = load_recipe(GUESS, "tiny", [f"eval.env=[{', '.join(f'{{id={e!r}}}' for e in both)}]"])
    counts = task_overlap(same)
    assert (counts["distinct"], counts["seen_in_training"]) == (11, 10)


@pytest.mark.parametrize("env_id", DATA)
def test_questions_of_a_data_set_are_not_in_training(env_id):
    def count(kwargs):
        return task_overlap(load_recipe(GUESS, "tiny", [f"env=[{{id='{env_id}', {kwargs}}}]"]))

    divided = count("kwargs={dataset='sample'}")
    assert divided["distinct"] >= 1 and divided["seen_in_training"] == 0
    whole = count("kwargs={dataset='sample', part='all'}")
    assert whole["seen_in_training"] > 0.9 * whole["distinct"] > divided["distinct"]


def test_the_same_question_in_another_file_is_found(tmp_path):
    texts = [f"What is {n} + {n}?" for n in range(40)]
    for name, shown in {"a": texts, "b": [f" {t.upper()} " for t in texts[:5:-1]]}.items():
        rows = [{"problem": text, "answer": "1"} for text in shown]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    tables = [
        f"{key}=[{{id='qa:HotpotQA', kwargs={{dataset='{tmp_path}/{name}.jsonl'{more}}}}}]"
        for key, name, more in [("env", "a", ""), ("eval.env", "b", ", answer_format='tag'")]
    ]
    counts = task_overlap(load_recipe(GUESS, "tiny", tables))
    assert counts["distinct"] == counts["seen_in_training"] == 34


@pytest.mark.parametrize(
    ("distinct", "seen", "words"),
    [
        (10, 10, "500 episodes, 10 distinct tasks, all 10 also in training"),
        (10, 3, "500 episodes, 10 distinct tasks, 3 of them also in training"),
        (10, 0, "500 episodes, 10 distinct tasks, none of them in training"),
        (1, 1, "500 episodes, 1 distinct task, also in training"),
        (1, 0, "500 episodes, 1 distinct task, not in training"),
    ],
)
def test_the_counts_in_words(distinct, seen, words):
    counts = {"episodes": 500, "distinct": distinct, "seen_in_training": seen}
    counts |= {"training_tasks": 7, "compared": 7}
    assert overlap_in_words(counts) == f"Evaluation tasks: {words}"


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


def test_environments_of_bridges_and_servers_are_not_reset(monkeypatch):
    from gem_core.execution.server_client.client import RemoteEnv

    monkeypatch.setattr(RemoteEnv, "provenance", dict)
    recipe = load_recipe(
        GUESS, "tiny", [f"env=[{{id='remote:{GUESS}', kwargs={{url='http://127.0.0.1:9'}}}}]"]
    )
    assert task_overlap(recipe) is None
