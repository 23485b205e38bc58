"""The line of a training step: OpenRLHF's status under the common names, and what stops a run."""

from __future__ import annotations

import math

import pytest

from gem_core.errors import GemError
from gem_core.runs.directory.run_dir import RunDir
from gem_openrlhf.metrics import PREFIX, RunLog
from gem_parity.frozen import frozen_episodes

STATUS = {"gem/loss/policy": 0.25, "gem/grad_norm": 1.5, "gem/lr": 1e-3, "reward": 7.0}


@pytest.fixture
def run(tiny, tmp_path):
    recipe = tiny("batch.episodes=8", "train.log_episodes=3")
    return RunDir.create(tmp_path / "run", recipe, "openrlhf")


def test_a_step_is_logged_under_the_common_names(run):
    episodes = frozen_episodes(8)
    RunLog(run).log_step(1, episodes, {"advantage/std": 1.0}, STATUS)
    (row,) = run.metrics()
    assert (row["loss/policy"], row["grad_norm"], row["lr"]) == (0.25, 1.5, 1e-3)
    assert row["advantage/std"] == 1.0
    assert row["episodes"] == 8
    assert "reward" not in row  # OpenRLHF's own names stay out
    assert [episode.index for _, episode in run.episodes()] == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("loss/policy", math.nan),
        ("loss/value", math.inf),
        ("grad_norm", math.nan),
        ("grad_norm/critic", math.nan),
    ],
)
def test_a_loss_or_gradient_that_is_not_finite_stops_the_run(run, name, value):
    with pytest.raises(GemError, match=f"{name} is (nan|inf) in step 2"):
        RunLog(run).log_step(2, frozen_episodes(8), {}, {**STATUS, PREFIX + name: value})
    assert run.metrics() == []


def test_evaluations_are_logged_with_their_step(run):
    RunLog(run).log_evaluation(4, frozen_episodes(8))
    (row,) = run.evals()
    assert (row["step"], row["when"], row["episodes"]) == (4, "during", 8)
