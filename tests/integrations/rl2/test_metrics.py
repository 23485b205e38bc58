"""What RL2 logs in one step becomes one line under the common names."""

from __future__ import annotations

import pytest
import wandb

from gem_core.errors import GemError
from gem_core.runs.directory.run_dir import RunDir
from gem_parity.frozen import frozen_episodes
from gem_rl2.metrics import RunLog


@pytest.fixture
def log(tiny, tmp_path, monkeypatch):
    """The log of a new run, in the place of ``wandb.log``."""
    monkeypatch.setattr(wandb, "log", wandb.log)
    return RunLog(RunDir.create(tmp_path / "run", tiny("train.log_episodes=2"), "rl2"))


def test_passes_are_averaged_and_times_of_the_update_summed(log):
    wandb.log({"timing/rollout": 3.0}, step=1)
    wandb.log({"actor/clip_ratio": 0.75}, step=1)
    wandb.log({"actor/loss": 1.0, "actor/grad_norm": 0.5, "timing/update_actor": 2.0}, step=1)
    wandb.log({"actor/loss": 2.0, "actor/grad_norm": 0.5, "timing/update_actor": 4.0}, step=1)
    log.finish(1, frozen_episodes(4), {"lr": 0.25, "clip_ratio": 0.125})
    (row,) = log.run.metrics()
    assert (row["step"], row["loss/policy"], row["lr"]) == (1, 1.5, 0.25)
    assert row["clip_ratio"] == 0.125  # the adapter's figure, not RL2's
    assert (row["time/rollout"], row["time/update"]) == (3.0, 6.0)
    assert len(list(log.run.episodes())) == 2


def test_what_an_evaluation_logs_is_not_of_the_next_step(log):
    wandb.log({"timing/rollout": 100.0}, step=1)
    log.begin()
    wandb.log({"timing/rollout": 3.0, "actor/loss": 1.0}, step=2)
    log.finish(2, frozen_episodes(4), {})
    assert log.run.metrics()[0]["time/rollout"] == 3.0


@pytest.mark.parametrize(
    ("native", "common"),
    [
        ("actor/loss", "loss/policy"),
        ("critic/loss", "loss/value"),
        ("actor/grad_norm", "grad_norm"),
    ],
)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_step_that_is_not_finite_stops_the_run(log, native, common, value):
    with pytest.raises(GemError, match=f"{common} is .* in step 7"):
        wandb.log({native: value}, step=7)  # RL2's checkpoint of the step comes after this
    assert log.run.metrics() == []
