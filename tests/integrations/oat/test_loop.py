"""Oat's own loop in this process: updates, sync, metrics, evaluation, checkpoint, resume."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
import transformers

from gem_conform.metric_names import COMMON
from gem_core.errors import GemError
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.resolved import resolve_run
from gem_core.training.tiny import model_path
from gem_oat import launch
from gem_oat.cpu import vllm_standin
from gem_oat.cpu.in_process import InProcessLearner
from gem_oat.learner import GemLearner

THREE = [
    "train.steps=3",
    "algorithm.epochs=2",
    "algorithm.minibatches=2",
    "batch.micro_batch=4",
    "algorithm.lr_schedule=cosine",
    "eval.every=2",
    "eval.inside_episodes=4",
    "train.save_every=1",
    "train.log_episodes=2",
]


class Watched(InProcessLearner):
    """Notes, at every sync, whether the actor's weights are the learner's, and the buffer."""

    def sync_params_to_actors(self):
        super().sync_params_to_actors()
        mine = dict(self.model.model.module.named_parameters())
        theirs = dict(self.actors[0].actor.llm.model.named_parameters())
        assert mine.keys() == theirs.keys()
        equal = all(torch.equal(mine[name], theirs[name]) for name in mine)
        self.syncs = [*getattr(self, "syncs", []), (equal, self.model.model.global_steps)]

    def learn(self, learning_round):
        self.buffers = [*getattr(self, "buffers", []), list(self.pi_buffer)]
        return super().learn(learning_round)


class Counting(Watched):
    """Notes each step's passes per update, and what DeepSpeed's optimizer was told of them."""

    def learn(self, learning_round):
        told = [engine.optimizer.gradient_accumulation_steps for engine in self.engines]
        passes = self.strategy.grad_acc_step
        self.passes = [*getattr(self, "passes", []), passes]
        assert told == [passes] * len(told)
        # DeepSpeed updates where its count of passes is a multiple of this: it must begin at one.
        assert all(engine.micro_steps % passes == 0 for engine in self.engines)
        return super().learn(learning_round)


def test_an_update_is_whole_whatever_the_number_of_rows(learner, recipe):
    keys = ["train.steps=4", "algorithm.epochs=1", "batch.micro_batch=3", "train.save_every=0"]
    keys.append("context.history=last")  # a row per turn
    made = learner(recipe(*keys), learner=Counting)
    made.run()
    assert len(set(made.passes)) > 1, "all steps have as many passes: the test shows nothing"
    assert made.syncs == [(True, 1), (True, 2), (True, 3), (True, 4)]


@pytest.fixture
def finished(recipe, learner, tmp_path):
    """A run of three steps with four updates each, and its learner."""
    made = learner(recipe(*THREE), learner=Watched)
    made.run()
    return made, RunDir(tmp_path / "run")


def test_three_steps_of_oats_loop(finished, recipe):
    made, run = finished
    small = recipe(*THREE)
    # Updates and sync.
    assert made.syncs == [(True, 4), (True, 8), (True, 12)]
    before = transformers.AutoModelForCausalLM.from_pretrained(model_path(small)).state_dict()
    after = made.model.model.module.state_dict()
    body = [name for name in after if "layers" in name]
    assert body and [name for name in body if torch.equal(before[name], after[name])] == []
    # Each step's rows are the buffer, whole, padded to equal minibatches.
    for step, buffer in enumerate(made.buffers):
        rows = [data.row for data in buffer]
        numbers = [row.segment[0] for row in rows if row.turns]
        assert numbers == list(range(step * 8, step * 8 + 8))
        assert len(buffer) % (2 * 4) == 0 and len(buffer) - len(numbers) < 8
    # Metrics.
    metrics = run.metrics()
    assert [row["step"] for row in metrics] == [1, 2, 3]
    for row, buffer in zip(metrics, made.buffers, strict=True):
        assert row["episodes"] == 8 and row["rows/all"] == len(buffer)
        assert row["rows/masked"] == len(buffer) - row["episodes"]
        assert row["advantage/mean"] == pytest.approx(0, abs=1e-9)
        assert row["advantage/std"] == pytest.approx(1)
        assert row["grad_norm"] > 0 and row["entropy"] > 0
        assert all(row[f"time/{part}"] > 0 for part in ("step", "rollout", "update", "sync"))
        assert all(np.isfinite(value) for value in row.values())
        assert row.keys() >= COMMON
    # Cosine over twelve optimizer steps, after three, seven and eleven of them.
    rates = [1e-3 * (1 + math.cos(math.pi * done / 12)) for done in (3, 7, 11)]
    assert [row["lr"] for row in metrics] == pytest.approx(rates)
    episodes = list(run.episodes())
    assert [(tags["step"], e.index) for tags, e in episodes if tags["split"] == "train"] == [
        (1, 0), (1, 1), (2, 8), (2, 9), (3, 16), (3, 17),
    ]  # fmt: skip
    evaluated = [(tags["step"], e.index) for tags, e in episodes if tags["split"] == "eval"]
    assert evaluated == [(2, 0), (2, 1)]
    # Evaluation inside training.
    (during,) = run.evals()
    assert (during["step"], during["when"], during["episodes"]) == (2, "during", 4)
    # The newest checkpoints, and a model that plain transformers reads.
    kept = sorted(path.name for path in (run.checkpoints / "policy").glob("step_*"))
    assert kept == ["step_000002", "step_000003"] and launch.last_checkpoint(run) == 3
    loaded = transformers.AutoModelForCausalLM.from_pretrained(run.model)
    assert loaded.config.use_cache
    for name, weight in loaded.state_dict().items():
        assert torch.equal(weight, after[name]), name
    tokenizer = transformers.AutoTokenizer.from_pretrained(run.model)
    assert tokenizer.get_vocab() == made.tokenizer.get_vocab()
    assert not (run.path / "export").exists()


class Killed(Exception):
    """Stands for a kill between two steps."""


SLEEPS = ("trainer.oat.vllm_sleep=true", "trainer.oat.enable_prefix_caching=true")


def test_an_engine_sleeps_while_oat_trains(recipe, learner):
    made = learner(recipe(*THREE, *SLEEPS))
    made.run()
    counts = made.actors[0].actor.llm.state.counts
    assert counts["sleep"] == counts["wake_up"] == counts["reset_cache"] == 3
    assert counts["ask"] > 3 and counts["load"] >= 3


@pytest.mark.parametrize(
    ("call", "message"),
    [("wake_up", "got weights while it slept"), ("reset_prefix_cache", "cache is of weights")],
)
def test_a_call_that_is_missing_is_found(recipe, learner, monkeypatch, call, message):
    monkeypatch.setattr(vllm_standin.LLM, call, lambda self: None)
    sleeps = SLEEPS if call == "wake_up" else SLEEPS[1:]  # asleep, it has no cache to reset
    with pytest.raises(GemError, match=message):
        learner(recipe(*THREE, *sleeps)).run()


def test_a_killed_run_continues_from_its_checkpoint(recipe, tmp_path, monkeypatch):
    small = recipe("train.steps=4", "train.save_every=2")
    whole = RunDir.create(tmp_path / "whole", small, "oat")
    launch.run(resolve_run(small, "oat"), whole)

    cut = RunDir.create(tmp_path / "cut", small, "oat")
    learn = GemLearner.learn
    calls = []

    def killed(self, learning_round):
        calls.append(learning_round)
        if len(calls) == 4:
            raise Killed
        return learn(self, learning_round)

    with monkeypatch.context() as patch:
        patch.setattr(GemLearner, "learn", killed)
        with pytest.raises(Killed):
            launch.run(resolve_run(small, "oat"), cut)
    assert [row["step"] for row in cut.metrics()] == [1, 2, 3] and not cut.model.exists()
    assert launch.last_checkpoint(cut) == 2
    launch.run(resolve_run(small, "oat"), cut, resume=True)

    assert [row["step"] for row in cut.metrics()] == [1, 2, 3, 4]
    for one, other in zip(whole.metrics(), cut.metrics(), strict=True):
        assert one["reward/mean"] == other["reward/mean"]
        assert one["tokens/all"] == other["tokens/all"]  # the same episodes, so the same actor
    weights = [
        transformers.AutoModelForCausalLM.from_pretrained(run.model).state_dict()
        for run in (whole, cut)
    ]
    for name in weights[0]:
        torch.testing.assert_close(weights[0][name], weights[1][name], rtol=1e-4, atol=1e-5)
    lines = (cut.path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 3, 4]
    launch.run(resolve_run(small, "oat"), cut, resume=True)  # finished: nothing to do
    assert (cut.path / "metrics.jsonl").read_text().splitlines() == lines


def test_oats_critic_trains_on_turns(recipe, learner, tmp_path):
    gae = recipe(
        "algorithm.estimator=gae",
        "train.steps=2",
        "train.save_every=1",
        "limits.max_turns=2",
        "algorithm.critic_lr=0.01",
    )
    made = learner(gae)
    made.run()
    run = RunDir(tmp_path / "run")
    rows = run.metrics()
    assert rows[0]["loss/value"] != rows[1]["loss/value"]
    assert made.critic.global_steps == made.model.model.global_steps == 2
    again = learner(gae, start=1)
    again._init(again.args, again.actors)
    assert again.critic.global_steps == again.model.model.global_steps == 1


@pytest.mark.parametrize("kl_in", ["loss", "reward"])
def test_kl_to_the_first_model(recipe, learner, tmp_path, kl_in):
    made = learner(recipe("algorithm.kl_coef=0.5", f"algorithm.kl_in={kl_in}"))
    made.run()
    first, second = RunDir(tmp_path / "run").metrics()
    # The k3 estimator: zero before the first update, positive after it.
    assert first["kl"] == pytest.approx(0, abs=1e-6) and second["kl"] > 1e-6


def test_history_that_rewrites_the_prompt(recipe, learner):
    made = learner(recipe("context.history=last", "train.steps=1"), learner=Watched)
    made.run()
    rows = [data.row for data in made.buffers[0]]
    assert any(row.segment[1] == row.turns[0].turn == 1 for row in rows)
    assert made.syncs == [(True, 1)]
