"""The advantages in ``episodes.jsonl`` are those with which the step trained, or none."""

from __future__ import annotations

import numpy as np
import pytest

from gem_adapters.estimate import estimate
from gem_adapters.run_log import log_step
from gem_adapters.turn_batch import turn_batch
from gem_core.errors import RunError
from gem_core.runs.directory.episode_store import episodes_file, read_records
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import load_recipe
from gem_parity.frozen import frozen_episodes


def logged(tmp_path, estimator, change):
    recipe = load_recipe(
        "guess-the-number-easy",
        "tiny",
        [f"algorithm.estimator={estimator}", "train.log_episodes=5", "batch.group_size=4"],
    )
    run = RunDir.create(tmp_path / "run", recipe, "trl")
    episodes = frozen_episodes(16)
    batch = turn_batch(episodes)
    metrics = {}
    if estimator != "gae":
        estimated = estimate(batch, recipe.algorithm)
        metrics = {**estimated.metrics, **change}
    log_step(run, 1, episodes, metrics)
    rows = list(read_records(episodes_file(run.path)))
    assert [episode.index for _, episode in run.episodes()] == [e.index for e in episodes[:5]]
    return rows, (estimated.advantages if metrics else None), batch.episode


@pytest.mark.parametrize("estimator", ["rebn", "grpo", "reinforce"])
def test_the_advantages_of_the_whole_batch_are_written_with_the_episodes(tmp_path, estimator):
    rows, advantages, episode = logged(tmp_path, estimator, {})
    assert len(rows) == 5
    for number, row in enumerate(rows):
        assert len(row["advantages"]) == len(row["turns"])
        assert np.array_equal(row["advantages"], advantages[episode == number])


@pytest.mark.parametrize(
    ("estimator", "change"),
    [
        ("gae", {}),
        ("rebn", {"advantage/std": 0.7}),
        ("rebn", {"turns/masked": 3.0}),
        ("rebn", {"episodes/untrained": 5.0}),
    ],
)
def test_advantages_that_are_not_known_for_certain_are_not_written(tmp_path, estimator, change):
    rows, _, _ = logged(tmp_path, estimator, change)
    assert all("advantages" not in row for row in rows)


def test_a_step_that_was_saved_but_not_logged_keeps_its_draft(tmp_path):
    recipe = load_recipe("guess-the-number-easy", "tiny", ["train.log_episodes=2"])
    run = RunDir.create(tmp_path / "run", recipe, "verl")
    episodes = frozen_episodes(4)
    log_step(run, 1, episodes, {"loss/policy": 0.5}, draft=True)
    assert run.metrics() == [] and run.read_draft()["loss/policy"] == 0.5
    log_step(run, 1, episodes, {"loss/policy": 0.5, "time/step": 2.0})
    assert run.read_draft() is None
    log_step(run, 2, episodes, {"loss/policy": 0.25}, draft=True)  # and the process is killed

    again = RunDir.create(run.path, recipe, "verl", if_exists="resume")
    assert [row["step"] for row in again.lines("metrics.jsonl")] == [1, 2]
    assert again.metrics()[0]["time/step"] == 2.0 and again.metrics()[1]["loss/policy"] == 0.25
    stored = list(read_records(episodes_file(run.path)))
    assert [row["step"] for row in stored] == [1, 1, 2, 2]
    log_step(again, 2, episodes, {"loss/policy": 0.25})  # its checkpoint was not complete
    assert [row["step"] for row in again.metrics()] == [1, 2]
    assert len(list(again.episodes())) == 4
    assert len(list(read_records(episodes_file(run.path)))) == 6


def test_a_draft_of_a_step_that_was_logged_adds_nothing(tmp_path):
    recipe = load_recipe("guess-the-number-easy", "tiny")
    run = RunDir.create(tmp_path / "run", recipe, "verl")
    run.log(1, {"loss/policy": 1.0})
    run.draft(1, {"loss/policy": 2.0})
    again = RunDir.create(run.path, recipe, "verl", if_exists="resume")
    assert [row["loss/policy"] for row in again.lines("metrics.jsonl")] == [1.0]
    for damaged in ("{}", '{"step": 2, "loss/policy": "low"}'):
        (run.path / "draft.json").write_text(damaged)
        with pytest.raises(RunError, match=r"draft\.json"):
            RunDir.create(run.path, recipe, "verl", if_exists="resume")
        assert [row["step"] for row in run.metrics()] == [1]
