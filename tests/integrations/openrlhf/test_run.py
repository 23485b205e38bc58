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

from gem_conform.metric_names import COMMON
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.tasks import step_tasks

SCRIPT = Path(__file__).parents[3] / "recipes" / "openrlhf" / "train.py"
PROGRAM = ("-m", "gem_core.cli", "train", "guess-the-number-easy", "--profile", "tiny")
SMALL = ("batch.episodes=16", "train.log_episodes=16", "train.save_every=1", "eval.episodes=0")
SLEEPS = ("train.colocate_all", "vllm.enable_sleep", "vllm.enable_prefix_caching")
ASYNC = "trainer.openrlhf.train.async_enable=true"


def start(path, *overrides, resume=False, program=(*PROGRAM, "--trainer", "openrlhf")):
    command = [sys.executable, *program, "--run", str(path)]
    if resume:
        command.append("--resume")
    for override in (*SMALL, *overrides):
        command += ["--set", override]
    with Path(f"{path}.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def wait(process, seconds=1200):
    try:
        return process.wait(timeout=seconds)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)  # Ray's own clean-up, then its reaper
            process.wait(timeout=60)


def finish(process, path):
    assert wait(process) == 0, Path(f"{path}.log").read_text()[-4000:]


def check(path, steps):
    run = RunDir(path)
    rows = run.metrics()
    assert [row["step"] for row in rows] == list(range(1, steps + 1))
    for row in rows:
        assert {*COMMON, "time/sync"} <= row.keys()
        assert row["episodes"] == 16
    played = {}
    for tags, episode in run.episodes():
        if tags["split"] == "eval":
            continue
        played.setdefault(tags["step"], {})[episode.index] = episode.seed
    for step in range(steps):
        expected = {task.index: task.seed for task in step_tasks(run.recipe, step)}
        assert played[step + 1] == expected  # task order, whatever OpenRLHF's loader would shuffle
    return run, rows


def loads_plainly(run):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import gem_core.training.tiny

    model = AutoModelForCausalLM.from_pretrained(run.model)
    first = AutoModelForCausalLM.from_pretrained(gem_core.training.tiny.model_path(run.recipe))
    pairs = zip(model.parameters(), first.parameters(), strict=True)
    assert any(not (a == b).all() for a, b in pairs), "the weights did not change"
    assert str(model.dtype) == "torch.float32"
    AutoTokenizer.from_pretrained(run.model)


def test_synchronous(tmp_path):
    path = tmp_path / "run"
    overrides = ("train.steps=3", "batch.group_size=2", "eval.every=2", "eval.inside_episodes=5")
    # The engine sleeps while OpenRLHF trains; asked in its sleep or with an old cache, it raises.
    sleeps = [f"trainer.openrlhf.{key}=true" for key in SLEEPS]
    finish(start(path, *overrides, "algorithm.rollout_correction=tis", *sleeps), path)
    run, rows = check(path, 3)
    loads_plainly(run)
    # Small only if the engine sampled from the very weights that are trained, in every step.
    assert all(row["rollout/logprob_difference"] < 1e-5 for row in rows)
    assert all(row["rollout/filtered"] == 0 for row in rows)
    assert any(row["clip_ratio"] > 0 for row in rows)  # so later epochs did move off the batch
    updates = run.recipe.algorithm.epochs  # the rate is that of a step's last one
    done = [row["step"] * updates - 1 for row in rows]
    cosine = [0.5 * (1 + math.cos(math.pi * count / (3 * updates))) for count in done]
    lr = run.recipe.algorithm.lr
    assert [row["lr"] for row in rows] == pytest.approx([lr * x for x in cosine], abs=1e-9)
    (evaluation,) = run.evals()
    assert (evaluation["step"], evaluation["when"], evaluation["episodes"]) == (2, "during", 5)
    assert "GemPPOTrainer" in Path(f"{path}.log").read_text()
    assert sorted(p.name for p in (run.checkpoints / "_actor").glob("global_step*")) == [
        "global_step2",
        "global_step3",
    ]


@pytest.mark.slow
def test_the_script_trains(tmp_path):
    path = tmp_path / "run"
    quick = ("train.steps=1", "model.tiny.warm_start_steps=0")
    finish(start(path, *quick, program=(str(SCRIPT),)), path)
    run, _ = check(path, 1)
    assert run.model.exists()
    log = Path(f"{path}.log").read_text()
    assert "GemPPOTrainer" in log and f"model in {run.model}" in log


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [(), (ASYNC,)], ids=["synchronous", "asynchronous"])
def test_a_run_whose_loss_is_not_finite_ends(tmp_path, overrides):
    path = tmp_path / "run"
    process = start(path, "train.steps=4", "algorithm.lr=1e30", *overrides)
    assert wait(process) == 2
    assert "loss/policy is nan in step 1: lower algorithm.lr" in Path(f"{path}.log").read_text()
    assert RunDir(path).metrics() == []


@pytest.mark.slow
def test_asynchronous_with_importance_correction(tmp_path):
    path = tmp_path / "run"
    finish(start(path, "train.steps=3", ASYNC, "algorithm.rollout_correction=tis"), path)
    run, rows = check(path, 3)
    loads_plainly(run)
    assert rows[0]["rollout/logprob_difference"] < 1e-5  # the first batch is on-policy
    assert all(1e-4 < row["rollout/logprob_difference"] < 0.5 for row in rows[1:])  # old weights
    assert "GemTrainingActor" in Path(f"{path}.log").read_text()


@pytest.mark.slow
def test_an_asynchronous_run_repeats_and_is_the_synchronous_one_with_old_weights(tmp_path):
    """Versions come by the virtual clock, not by who is first: also beside other load."""
    settings = ("train.steps=5", "sampling.staleness=1", "algorithm.lr=2e-3")
    settings += ("eval.every=2", "eval.inside_episodes=6")
    modes = {"once": (ASYNC,), "again": (ASYNC,), "in turn": ()}
    runs = []
    for name, mode in modes.items():
        path = tmp_path / name
        busy = [spin() for _ in range(2)] if name == "again" else []
        try:
            finish(start(path, *settings, *mode), path)
        finally:
            for process in busy:
                process.kill()
                process.wait()
        run, rows = check(path, 5)
        assert [row["rollout/staleness_max"] for row in rows] == [0, 1, 1, 1, 1]
        runs.append(run)
    first, *others = [traced(run) for run in runs]
    assert all(other == first for other in others)
    rewards = [[row["reward/mean"] for row in run.metrics()] for run in runs]
    assert rewards[0] == rewards[1] == rewards[2]


def spin():
    """A process that takes what it can of a processor, and ends by itself."""
    code = "import time\nuntil = time.time() + 900\nwhile time.time() < until: pass"
    return subprocess.Popen([sys.executable, "-c", code])


def traced(run):
    """Tokens and versions of every episode, in training and evaluations."""
    return {
        (tags["split"], tags["step"], episode.index): (
            [segment.token_ids for segment in episode.segments],
            [turn.version for turn in episode.turns] if tags["split"] == "train" else None,
        )
        for tags, episode in run.episodes()
    }


@pytest.mark.slow
def test_adapters_and_passes_filled_by_tokens(tmp_path):
    path = tmp_path / "run"
    adapters = ("model.lora.rank=4", "algorithm.lr=0.01")
    finish(start(path, "train.steps=3", *adapters, "batch.max_tokens_per_device=512"), path)
    run, rows = check(path, 3)
    loads_plainly(run)
    # The engine has the merged weights, in every step those of the update before.
    assert all(row["rollout/logprob_difference"] < 1e-5 for row in rows)
    assert any(row["clip_ratio"] > 0 for row in rows)


@pytest.mark.slow
def test_critic_and_reference_model(tmp_path):
    path = tmp_path / "run"
    overrides = ["algorithm.estimator=gae", "algorithm.kl_coef=0.1", "algorithm.kl_in=reward"]
    drawn = ["sampling.top_p=0.8", "sampling.top_k=20", "sampling.support=drawn"]
    finish(start(path, "train.steps=2", "limits.max_turns=2", *overrides, *drawn), path)
    _, rows = check(path, 2)
    assert all(row["rollout/logprob_difference"] < 1e-5 for row in rows)
    assert all(row["loss/value"] > 0 for row in rows)


@pytest.mark.slow
def test_a_killed_run_continues_from_its_checkpoint(tmp_path):
    path = tmp_path / "run"
    process = start(path, "train.steps=40")
    deadline = time.monotonic() + 1200
    latest = path / "checkpoints" / "_actor" / "latest"
    while not (latest.exists() and int(latest.read_text().removeprefix("global_step")) >= 3):
        assert process.poll() is None and time.monotonic() < deadline
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
