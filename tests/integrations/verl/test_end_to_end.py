"""``verl.trainer.main_ppo`` itself: Ray, FSDP2, rollout replicas, weight synchronisation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from gem_adapters.estimate import estimate
from gem_adapters.turn_batch import turn_batch
from gem_conform.metric_names import COMMON
from gem_core.errors import GemError
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.resolved import resolve_run
from gem_core.runs.tasks import train_task
from gem_verl.launch import run as train

FAULTY = '''
from gem_core.env.interface import Env
from gem_core.env.registration import register as add


class Faulty(Env):
    """Raises at its second step for every fourth seed."""

    def _reset(self, options):
        self.fails, self.count = self.seed % 4 == 3, 0
        return "say something", {}

    def reset(self, *, seed=None, options=None):
        self.seed = seed or 0
        return super().reset(seed=seed, options=options)

    def _step(self, action):
        self.count += 1
        if self.fails and self.count == 2:
            raise RuntimeError("scripted fault")
        over = self.count == 3
        return "more", float(len(action) % 3), over, False, {"success": over}


def register():
    add("verltest:Faulty", "verltest_faulty:Faulty")
'''


THIEF = """
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY

ADV_ESTIMATOR_REGISTRY["gem_rebn"] = lambda **_: None
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """``package(name, source, entry_points)``: an installed package, in verl's processes too."""

    def make(name, source, entry_points):
        (tmp_path / f"{name}.py").write_text(source)
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(entry_points)
        paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))

    return make


@pytest.fixture
def faulty(package, monkeypatch):
    """A package that brings an environment with faults."""
    import gem_core.env.registration

    package("verltest_faulty", FAULTY, "[gem_core.envs]\nfaulty = verltest_faulty:register\n")
    monkeypatch.setattr(gem_core.env.registration, "_plugins_loaded", False)


def distance(run, model_dir):
    """Largest change of a weight between the first model and the run's."""
    first = weights_of(model_dir)
    last = weights_of(run.model)
    return max(float((first[name] - last[name]).abs().max()) for name in first)


def weights_of(path):
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).state_dict()


def test_two_ranks_train_on_episodes_some_of_which_fail(tiny, faulty, tmp_path, model_dir):
    recipe = tiny(
        "env=[{id='game:GuessTheNumber-v0-easy'}, {id='verltest:Faulty'}]",
        f"model.path={model_dir}",
        "batch.episodes=10",
        "algorithm.minibatches=2",
        "algorithm.epochs=2",
        "algorithm.kl_coef=0.01",
        "algorithm.options={per_env=true}",
        "hardware.gpus_per_node=2",
        "train.steps=2",
        "train.log_episodes=10",
        "eval.every=2",
        "eval.inside_episodes=4",
    )
    run = RunDir.create(tmp_path / "run", recipe, "verl")
    train(resolve_run(recipe, "verl"), run)

    episodes = [(tags, e) for tags, e in run.episodes() if tags["split"] == "train"]
    numbers = [(tags["step"], e.index, e.seed) for tags, e in episodes]
    tasks = [train_task(recipe, index) for index in range(20)]
    assert numbers == [(task.index // 10 + 1, task.index, task.seed) for task in tasks]
    failed = [e for _, e in episodes if e.stop_reason.failed]
    assert failed and all("scripted fault" in e.error for e in failed)
    assert all(not any(e.segments[0].loss_mask) for e in failed)

    metrics = run.metrics()
    assert [row["step"] for row in metrics] == [1, 2]
    for step, row in enumerate(metrics, 1):
        played = [e for tags, e in episodes if tags["step"] == step]
        share = sum(e.stop_reason.failed for e in played) / 10
        assert row["stop/env_error"] == pytest.approx(share)
        assert row["episodes/untrained"] == sum(not any(e.segments[0].loss_mask) for e in played)
        expected = estimate(turn_batch(played), recipe.algorithm).metrics
        assert row["turns/masked"] > 0 or not any(e.stop_reason.failed for e in played)
        assert {name: row[name] for name in expected} == pytest.approx(expected, abs=1e-6)
        assert row["reward/mean"] == pytest.approx(sum(e.total_reward for e in played) / 10)
        assert row.keys() >= COMMON
        assert row["grad_norm"] > 0 and row["entropy"] > 0 and "kl" in row
        assert row["rollout/logprob_difference"] < 1e-5
        assert all(row[f"time/{part}"] > 0 for part in ("step", "rollout", "update", "sync"))
    (evaluation,) = run.evals()
    assert (evaluation["step"], evaluation["when"], evaluation["episodes"]) == (2, "during", 4)

    assert 1e-5 < distance(run, model_dir) < 0.1
    assert AutoTokenizer.from_pretrained(run.model).eos_token is not None
    assert AutoModelForCausalLM.from_pretrained(run.model).dtype == torch.float32


@pytest.mark.slow  # test_sampler.py: verl's trainer makes the sampler, which refuses it
def test_an_estimator_of_another_plugin_stops_the_run_before_its_first_step(
    package, tiny, tmp_path
):
    package("verltest_thief", THIEF, "[verl.plugins]\nthief = verltest_thief\n")
    recipe = tiny()
    run = RunDir.create(tmp_path / "run", recipe, "verl")
    with pytest.raises(GemError, match="gem_rebn"):
        train(resolve_run(recipe, "verl"), run)
    assert run.metrics() == []
    assert not run.model.exists()


RUN = "import sys; from gem_core.runs.directory.run_dir import RunDir; "
RUN += "from gem_core.runs.resolved import read_resolved; "
RUN += "from gem_verl.launch import run; d = RunDir(sys.argv[1]); run(read_resolved(d), d)"


def test_a_killed_run_resumes_with_the_next_tasks(tiny, tmp_path):
    """With a critic, whose batches verl's workers take from its transfer queue themselves.

    It is killed where verl has saved a step that it logs only after the evaluation.
    """
    recipe = tiny(
        "train.steps=6",
        "train.save_every=1",
        "algorithm.estimator=gae",
        "batch.episodes=4",
        "eval.every=2",
        "eval.inside_episodes=150",
    )
    run = RunDir.create(tmp_path / "run", recipe, "verl")
    process = subprocess.Popen([sys.executable, "-c", RUN, str(run.path)])
    saved = Path(run.checkpoints / "latest_checkpointed_iteration.txt")
    while not (saved.exists() and saved.read_text() == "2"):
        assert process.poll() is None
        time.sleep(0.02)
    tree = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    for each in tree:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    process.wait()
    psutil.wait_procs(tree[1:], timeout=60)
    assert saved.read_text() == "2"
    assert [row["step"] for row in run.metrics()] == [1]
    assert {tags["step"] for tags, _ in run.episodes()} == {1, 2}

    run = RunDir.create(run.path, recipe, "verl", if_exists="resume")
    train(resolve_run(recipe, "verl"), run, resume=True)
    rows = [json.loads(x) for x in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, 7))
    whole = rows[0].keys() - {"time/checkpoint"}
    assert all(whole <= row.keys() for row in rows if row["step"] != 2)
    missing = whole - rows[1].keys()
    assert all(name.startswith("time/") for name in missing), missing
    played = [(tags["step"], e.index) for tags, e in run.episodes() if tags["split"] == "train"]
    assert sorted(played) == [(k // 4 + 1, k) for k in range(24)]
