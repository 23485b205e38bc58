"""A training step in the run directory, and the stop at a step that is not finite."""

from __future__ import annotations

import math

import pytest

from gem_core.errors import GemError
from gem_core.training.runs import RunDir
from gem_oat.cpu.in_process import InProcessLearner
from gem_oat.metrics import NAMES, RunLog

LOGS = {"train/policy_grad_norm": 0.5, "train/pg_clipfrac": 0.25, "train/pg_loss": 9.0}
METRICS = {"loss/policy": 0.125, "turns/masked": 3.0, "rows/all": 100, "lr": 1e-3}


@pytest.fixture
def run(recipe, tmp_path):
    return RunDir.create(tmp_path / "run", recipe("train.log_episodes=2"), "oat")


def test_only_what_has_a_common_name_is_kept():
    assert RunLog.common(LOGS) == {"grad_norm": 0.5, "clip_ratio": 0.25}
    assert RunLog.common(dict.fromkeys(NAMES, 1)) == dict.fromkeys(NAMES.values(), 1.0)


def test_a_line_has_the_common_names(run, episodes):
    batch = episodes()
    RunLog(run).log(1, batch, LOGS, METRICS)
    (line,) = run.metrics()
    turns = sum(len(episode.turns) for episode in batch)
    assert line["step"] == 1 and line["episodes"] == len(batch)
    assert (line["grad_norm"], line["loss/policy"], line["lr"]) == (0.5, 0.125, 1e-3)
    assert line["rows/masked"] == 100 - (turns - 3)
    assert line["time/step"] > 0
    assert [tags["step"] for tags, _ in run.episodes()] == [1, 1]


def test_wandb_gets_the_same_line(run, episodes):
    lines = []

    class Wandb:
        def log(self, line, step):
            lines.append({"step": step, **line})

    RunLog(run, Wandb()).log(4, episodes(), LOGS, METRICS)
    (written,) = run.metrics()
    del written["time"]
    assert lines == [written]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_or_gradient_that_is_not_finite_is_not_written(run, episodes, bad):
    with pytest.raises(GemError, match=r"grad_norm is .* in step 1: lower algorithm\.lr"):
        RunLog(run).log(1, episodes(), {**LOGS, "train/policy_grad_norm": bad}, METRICS)
    with pytest.raises(GemError, match=r"loss/policy is .* in step 1: lower algorithm\.lr"):
        RunLog(run).log(1, episodes(), LOGS, {**METRICS, "loss/policy": bad})
    assert run.metrics() == []


class Spoiled(InProcessLearner):
    """Oat's loop, with a weight that is not a number before the second update."""

    def learn(self, learning_round):
        if learning_round == 2:
            weight = next(iter(self.model.model.module.parameters()))
            weight.data.fill_(math.nan)
        return super().learn(learning_round)


def test_a_run_stops_at_the_first_step_that_is_not_finite(recipe, learner, tmp_path):
    made = learner(recipe("train.steps=3", "train.save_every=1"), learner=Spoiled)
    with pytest.raises(GemError, match=r"loss/policy is nan in step 2: lower algorithm\.lr"):
        made.run()
    stopped = RunDir(tmp_path / "run")
    assert [line["step"] for line in stopped.metrics()] == [1]
    kept = [path.name for path in (stopped.checkpoints / "policy").glob("step_*")]
    assert kept == ["step_000001"] and not stopped.model.exists()
