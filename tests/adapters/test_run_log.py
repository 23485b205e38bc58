"""The advantages in ``episodes.jsonl`` are those with which the step trained, or none."""

from __future__ import annotations

import numpy as np
import pytest

from gem_adapters.estimate import estimate
from gem_adapters.run_log import log_step
from gem_adapters.turn_batch import turn_batch
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
