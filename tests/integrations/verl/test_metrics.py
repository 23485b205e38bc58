"""verl's own tracking writes the run directory, and stops at a loss that is not finite."""

from __future__ import annotations

import math

import pytest
from verl.utils.tracking import Tracking

from gem_core.errors import GemError
from gem_core.runs.directory.run_dir import RunDir
from gem_parity.frozen import frozen_episodes
from gem_verl.metrics import RunLog

STEP = {
    "actor/pg_loss": 0.5,
    "actor/grad_norm": 1.5,
    "critic/vf_loss": 2.5,
    "gem/turns/masked": 3.0,
    "actor/gem/clip_ratio": 0.25,
    "perf/throughput": 9.0,
}


@pytest.fixture
def run(tiny, tmp_path):
    """An empty run directory."""
    return RunDir.create(tmp_path / "run", tiny("train.log_episodes=2"), "verl")


@pytest.fixture
def tracking(run):
    """verl's tracking with the run log as one of its backends, at a step of frozen episodes."""
    tracking = Tracking("gem-core", "test", "console")
    run_log = RunLog(run)
    run_log.begin(frozen_episodes(4))
    tracking.logger["gem-core"] = run_log
    return tracking


def test_a_step_is_logged_under_common_names(run, tracking):
    tracking.log(data=STEP, step=1)
    (row,) = run.metrics()
    names = ("step", "loss/policy", "grad_norm", "loss/value", "turns/masked", "clip_ratio")
    assert [row[name] for name in names] == [1, 0.5, 1.5, 2.5, 3.0, 0.25]
    assert "perf/throughput" not in row
    assert len(list(run.episodes())) == 2


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize(
    "name", ["actor/pg_loss", "actor/grad_norm", "critic/vf_loss", "critic/grad_norm"]
)
def test_a_loss_or_gradient_that_is_not_finite_stops_the_run(run, tracking, name, value):
    with pytest.raises(GemError, match=r"in step 7: lower algorithm\.lr"):
        tracking.log(data={**STEP, name: value}, step=7)
    assert run.metrics() == []
