"""A training step in the run directory, and the stop at a step that is not finite."""

from __future__ import annotations

import math

import pytest

from gem_core.errors import GemError
from gem_core.runs.directory.run_dir import RunDir
from gem_oat.cpu.in_process import InProcessLearner
from gem_oat.metrics import NAMES, RunLog

LOGS = {"train/learn_batch_time": 0.5, "actor/total_time": 0.25, "train/pg_loss": 9.0}
METRICS = {"loss/policy": 0.125, "grad_norm": 0.5, "rows/all": 100, "lr": 1e-3}


@pytest.fixture
def run(recipe, tmp_path):
    return RunDir.create(tmp_path / "run", recipe("train.log_episodes=2"), "oat")


def test_only_what_has_a_common_name_is_kept():
    assert RunLog.common(LOGS) == {"time/update": 0.5, "time/rollout": 0.25}
    assert RunLog.common(dict.fromkeys(NAMES, 1)) == dict.fromkeys(NAMES.values(), 1.0)


def test_a_line_has_the_common_names(run, episodes):
    batch = episodes()
    RunLog(run).log(1, batch, LOGS, METRICS)
    (line,) = run.metrics()
    trained = sum(any(part.loss_mask) for episode in batch for part in episode.segments)
    assert line["step"] == 1 and line["episodes"] == len(batch)
    assert (line["grad_norm"], line["loss/policy"], line["lr"]) == (0.5, 0.125, 1e-3)
    assert line["rows/masked"] == 100 - trained
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
        RunLog(run).log(1, episodes(), LOGS, {**METRICS, "grad_norm": bad})
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


class Stale(InProcessLearner):
    """Oat's loop, whose actors keep the first weights."""

    def sync_params_to_actors(self):
        pass


@pytest.mark.parametrize("learner_class", [InProcessLearner, Stale])
def test_old_weights_in_the_engine_are_seen(recipe, learner, tmp_path, learner_class):
    learner(recipe("train.steps=2"), learner=learner_class).run()
    first, second = RunDir(tmp_path / "run").metrics()
    assert first["rollout/logprob_difference"] < 1e-5
    expected = second["rollout/logprob_difference"] > 1e-3
    assert expected is (learner_class is Stale)
