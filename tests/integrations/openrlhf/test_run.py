"""The real command line under Ray on a CPU, started as a user starts it."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gem_core.episodes.metrics import COMMON
from gem_core.training.runs import RunDir
from gem_core.training.tasks import step_tasks

SCRIPT = Path(__file__).parents[3] / "recipes" / "openrlhf" / "train.py"
SMALL = ("batch.episodes=16", "train.log_episodes=16", "train.save_every=1")
CORRECTION = "trainer.openrlhf.algo.advantage.is_correction_level"


def start(path, *overrides, resume=False):
    command = [sys.executable, str(SCRIPT), "--run", str(path), *["--resume"] * resume]
    for override in (*SMALL, *overrides):
        command += ["--set", override]
    with Path(f"{path}.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def finish(process, path, seconds=1200):
    try:
        code = process.wait(timeout=seconds)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)  # Ray's own clean-up, then its reaper
            process.wait(timeout=60)
    assert code == 0, Path(f"{path}.log").read_text()[-4000:]


def check(path, steps):
    run = RunDir(path)
    rows = run.metrics()
    assert [row["step"] for row in rows] == list(range(1, steps + 1))
    for row in rows:
        assert {*COMMON, "time/sync"} <= row.keys()
        assert row["episodes"] == 16
    played = {}
    for tags, episode in run.episodes():
        played.setdefault(tags["step"], {})[episode.index] = episode.seed
    for step in range(steps):
        expected = {task.index: task.seed for task in step_tasks(run.recipe, step)}
        assert played[step + 1] == expected  # task order, whatever OpenRLHF's loader would shuffle
    return run, rows


def loads_plainly(run):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import gem_core.tiny

    model = AutoModelForCausalLM.from_pretrained(run.model)
    first = AutoModelForCausalLM.from_pretrained(gem_core.tiny.model_path(run.recipe))
    pairs = zip(model.parameters(), first.parameters(), strict=True)
    assert any(not (a == b).all() for a, b in pairs), "the weights did not change"
    assert str(model.dtype) == "torch.float32"
    AutoTokenizer.from_pretrained(run.model)


def test_synchronous(tmp_path):
    path = tmp_path / "run"
    overrides = ("train.steps=3", "batch.group_size=2", "eval.every=2", "eval.inside_episodes=5")
    finish(start(path, *overrides, f"{CORRECTION}=token"), path)
    run, rows = check(path, 3)
    loads_plainly(run)
    # Mean of log pi_rollout - log pi_train over what was sampled: zero only if the engine sampled
    # from the very weights that are trained, in every step.
    assert all(abs(row["sampling/logprob_difference"]) < 1e-5 for row in rows)
    assert any(row["clip_ratio"] > 0 for row in rows)  # so later epochs did move off the batch
    cosine = [0.5 * (1 + math.cos(math.pi * row["step"] / 3)) for row in rows]
    lr = run.recipe.algorithm.lr
    assert [row["lr"] for row in rows] == pytest.approx([lr * x for x in cosine], abs=1e-9)
    (found,) = run.evals()
    assert (found["step"], found["when"], found["episodes"]) == (2, "during", 5)
    assert "GemPPOTrainer" in Path(f"{path}.log").read_text()
    assert sorted(p.name for p in (run.checkpoints / "_actor").glob("global_step*")) == [
        "global_step2",
        "global_step3",
    ]


@pytest.mark.slow
def test_asynchronous_with_importance_correction(tmp_path):
    path = tmp_path / "run"
    finish(start(path, "train.steps=3", "trainer.openrlhf.train.async_enable=true"), path)
    run, rows = check(path, 3)
    loads_plainly(run)
    assert all(abs(row["sampling/logprob_difference"]) < 0.5 for row in rows)
    assert abs(rows[0]["sampling/logprob_difference"]) < 1e-3  # the first batch is on-policy
    assert "GemTrainingActor" in Path(f"{path}.log").read_text()


@pytest.mark.slow
def test_critic_and_reference_model(tmp_path):
    path = tmp_path / "run"
    overrides = ["algorithm.estimator=gae", "algorithm.kl_coef=0.1", "algorithm.kl_in=reward"]
    finish(start(path, "train.steps=2", "limits.max_turns=2", *overrides), path)
    _, rows = check(path, 2)
    assert all(row["loss/value"] > 0 for row in rows)


@pytest.mark.slow
def test_a_killed_run_goes_on_from_its_checkpoint(tmp_path):
    path = tmp_path / "run"
    process = start(path, "train.steps=40")
    ends = time.monotonic() + 1200
    latest = path / "checkpoints" / "_actor" / "latest"
    while not (latest.exists() and int(latest.read_text().removeprefix("global_step")) >= 3):
        assert process.poll() is None and time.monotonic() < ends
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    saved = int(latest.read_text().removeprefix("global_step"))
    rows = RunDir(path).metrics()
    assert saved >= rows[-1]["step"] - 1  # save_every = 1: at most the step under way is lost
    before = len((path / "metrics.jsonl").read_text().splitlines())
    finish(start(path, "train.steps=40", resume=True), path)
    check(path, 40)
    steps = [line.split(",")[0] for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert steps[before] == f'{{"step": {saved + 1}'
