"""The whole path: torchrun, RL2's own trainer and weight updates, the stand-in engine on a CPU."""

from __future__ import annotations

import json
import math
import os
import shutil
from importlib import import_module
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from gem_conform.metric_names import COMMON
from gem_core.errors import GemError
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.resolved import resolve_run
from gem_core.runs.tasks import step_tasks
from gem_core.training.tiny import model_path
from gem_rl2 import launch
from gem_rl2.launch import run

SMALL = ["batch.episodes=8", "train.steps=3", "train.save_every=1", "train.log_episodes=8"]


@pytest.fixture(scope="module")
def train(tiny, tmp_path_factory):
    """``train(name, *overrides)`` -> recipe and run directory of a finished run."""

    def start(name, *overrides):
        recipe = tiny(*SMALL, *overrides)
        directory = RunDir.create(tmp_path_factory.mktemp("runs") / name, recipe, "rl2")
        run(resolve_run(recipe, "rl2"), directory)
        return recipe, directory

    return start


@pytest.fixture(scope="module")
def plain(train):
    return train("plain", "eval.every=2", "eval.inside_episodes=4")


def children(of):
    """Processes that name the run directory, or that such a process started."""
    processes = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(of).encode() in path.read_bytes():
                processes.append(path)
        except OSError:
            continue  # it ended meanwhile
    return processes


def test_metrics_have_the_common_names(plain):
    _, directory = plain
    rows = directory.metrics()
    assert [row["step"] for row in rows] == [1, 2, 3]
    names = {*COMMON, "time/sync", "episodes/untrained"}
    for row in rows:
        assert names <= row.keys(), names - row.keys()
        assert row["grad_norm"] > 0 and row["advantage/std"] == pytest.approx(1.0)
        assert row["time/step"] >= row["time/rollout"] > 0


def test_rewards_of_every_turn_are_counted(plain):
    recipe, directory = plain
    for row in directory.metrics():
        tags = {"step": row["step"], "split": "train"}
        episodes = [e for its_tags, e in directory.episodes() if its_tags == tags]
        assert len(episodes) == recipe.batch.episodes
        total = sum(turn.reward for e in episodes for turn in e.turns)
        assert row["reward/mean"] == pytest.approx(total / len(episodes))
        assert row["turns/total"] == sum(len(e.turns) for e in episodes)


def test_each_step_plays_its_own_tasks(plain):
    recipe, directory = plain
    logged = [(tags, e) for tags, e in directory.episodes() if tags["split"] == "train"]
    played = [(tags["step"], e.index, e.seed) for tags, e in logged]
    tasks = [(s + 1, t.index, t.seed) for s in range(3) for t in step_tasks(recipe, s)]
    assert played == tasks


def test_evaluations_inside_training(plain):
    (row,) = plain[1].evals()
    assert (row["step"], row["when"], row["episodes"]) == (2, "during", 4.0)


def test_the_model_is_saved_and_moved(plain):
    recipe, directory = plain
    trained = AutoModelForCausalLM.from_pretrained(directory.model)
    before = AutoModelForCausalLM.from_pretrained(model_path(recipe)).state_dict()
    assert trained.dtype == torch.float32
    assert AutoTokenizer.from_pretrained(directory.model).eos_token
    moved = [n for n, w in trained.state_dict().items() if not torch.equal(w, before[n])]
    assert set(moved) == set(before)


def test_nothing_is_left_behind(plain):
    assert children(plain[1].path) == []
    assert "Traceback" not in (plain[1].path / "rl2.log").read_text()


def test_the_engine_answers_with_the_trained_weights(plain):
    """RL2 hands its weights over after each step: the last sampling is the last policy's own.

    Trainer and engine compute log-probs of the same tokens; a stale or wrong engine would differ.
    """
    recipe, directory = plain
    episodes = [e for tags, e in directory.episodes() if tags["step"] == 1]
    model = AutoModelForCausalLM.from_pretrained(model_path(recipe)).eval()
    for episode in episodes:
        (segment,) = episode.segments
        with torch.no_grad():
            logits = model(torch.tensor([segment.token_ids])).logits[0, :-1]
        logps = logits.log_softmax(-1).gather(1, torch.tensor(segment.token_ids[1:])[:, None])
        for _, start, end in segment.spans:
            mine = torch.tensor(segment.logprobs[start:end])
            torch.testing.assert_close(mine, logps[start - 1 : end - 1, 0], rtol=0, atol=1e-4)


def test_resume_continues_at_the_next_task(plain, tmp_path):
    recipe, directory = plain
    copy = RunDir(tmp_path / "copy")
    shutil.copytree(directory.path, copy.path)
    shutil.rmtree(copy.checkpoints / "step3")
    shutil.rmtree(copy.model)
    for name in ("metrics.jsonl", "episodes.jsonl.gz"):
        (copy.path / name).unlink()
    run(resolve_run(recipe, "rl2"), copy, resume=True)
    assert [row["step"] for row in copy.metrics()] == [3]
    assert [e.index for _, e in copy.episodes()] == list(range(16, 24))
    assert (copy.model / "config.json").exists()


KILLED = """
import os
import signal
import sys

from gem_rl2.cpu import enable

enable()
import RL2.workers.rollout as native

from gem_rl2.launch import main

send = native.Rollout.update


def kill(self, actor, step):
    if step == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return send(self, actor, step)


native.Rollout.update = kill
if __name__ == "__main__":  # the engine's process imports this, too
    main(sys.argv[1:])
"""


def test_a_run_killed_after_a_checkpoint_keeps_the_line_of_its_step(tiny, tmp_path, monkeypatch):
    """RL2 saves, sends the weights, and only then is the step logged."""
    recipe = tiny(*SMALL)
    (tmp_path / "rl2test_killed.py").write_text(KILLED)
    _, environment = launch.program(recipe)
    path = os.pathsep.join([str(tmp_path), environment.get("PYTHONPATH", "")])
    with monkeypatch.context() as patched:
        program = ("rl2test_killed", {**environment, "PYTHONPATH": path})
        patched.setattr(launch, "program", lambda recipe: program)
        directory = RunDir.create(tmp_path / "run", recipe, "rl2")
        with pytest.raises(GemError):
            run(resolve_run(recipe, "rl2"), directory)
    assert [row["step"] for row in directory.metrics()] == [1]
    assert (directory.checkpoints / "step2").is_dir()

    again = RunDir.create(directory.path, recipe, "rl2", if_exists="resume")
    run(resolve_run(recipe, "rl2"), again, resume=True)
    first, drafted, last = again.lines("metrics.jsonl")
    assert [first["step"], drafted["step"], last["step"]] == [1, 2, 3]
    assert first.keys() - drafted.keys() == {"time/step", "time/sync"}
    assert last.keys() == first.keys()
    assert sorted(episode.index for _, episode in again.episodes()) == list(range(24))


MINIBATCHES = ("algorithm.minibatches=2", "algorithm.epochs=1")
ONE_STEP = ("train.steps=1", *MINIBATCHES)
TWO = "hardware.gpus_per_node=2"


FAILING = """
import gem_core
from gem_core.envs.games.guess_the_number import GuessTheNumber

class Failing(GuessTheNumber):
    def _step(self, action):
        if self.fails:
            raise RuntimeError("on purpose")
        return super()._step(action)

    def _seed(self, seed):
        super()._seed(seed)
        self.fails = seed % 4 == 1

    fails = False

gem_core.register("failing:Guess-v0", "failing_guess:Failing", max_number=10)
"""


@pytest.fixture(scope="module")
def failing(tiny, tmp_path_factory):
    """The keys of an environment in which every fourth episode fails, in all processes.

    The model has learned the answer format: where no answer has it, all rewards are the same and
    the gradient is zero.
    """
    folder = tmp_path_factory.mktemp("packages")
    (folder / "failing_guess.py").write_text(FAILING)
    (folder / "sitecustomize.py").write_text("import failing_guess\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        patch.syspath_prepend(str(folder))
        import_module("failing_guess")
        yield ("env=[{id='failing:Guess-v0'}]", f"model.path={model_path(tiny())}")


@pytest.fixture(scope="module")
def first_norm(train, failing):
    """The gradient norm of a step of one rank; episodes differ in length, and some have failed."""
    (row,) = train("one", *ONE_STEP, *failing)[1].metrics()
    assert row["stop/env_error"] == 0.25 and row["grad_norm"] > 0.01
    return row["grad_norm"]


def test_two_ranks(train, failing, first_norm):
    """Two steps in which each rank has a part of the weights; the first is that of one rank."""
    recipe, directory = train("ranks", TWO, "train.steps=2", *MINIBATCHES, *failing)
    rows = directory.metrics()
    assert [row["step"] for row in rows] == [1, 2]
    assert rows[0]["grad_norm"] == pytest.approx(first_norm, rel=1e-5)
    trained = AutoModelForCausalLM.from_pretrained(directory.model).state_dict()
    before = AutoModelForCausalLM.from_pretrained(recipe.model.path).state_dict()
    assert all(not torch.equal(weight, before[name]) for name, weight in trained.items())
    shards = {path.name for path in (directory.checkpoints / "step2").iterdir()}
    assert {"__0_0.distcp", "__1_0.distcp"} <= shards
    assert children(directory.path) == []


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param((TWO, "hardware.sequence_parallel=2"), id="sequences"),
        pytest.param(
            (TWO, "trainer.rl2.actor.ddp_size=2"), id="a copy on each", marks=pytest.mark.slow
        ),
        pytest.param((TWO, "hardware.tensor_parallel=2"), id="tensors"),
        pytest.param(
            ("hardware.gpus_per_node=4", "hardware.tensor_parallel=2"),
            id="tensors and weights",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ("hardware.gpus_per_node=4", "trainer.rl2.actor.ddp_size=2"),
            id="copies",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_ranks_have_the_gradient_of_one(train, failing, first_norm, keys):
    _, directory = train("-".join(keys).replace("/", "-"), *ONE_STEP, *failing, *keys)
    assert directory.metrics()[0]["grad_norm"] == pytest.approx(first_norm, rel=1e-5)


DRAWN = ("sampling.top_p=0.8", "sampling.top_k=20", "sampling.support=drawn")


@pytest.mark.parametrize("parallel", ["tensor", pytest.param("sequence", marks=pytest.mark.slow)])
def test_a_divided_vocabulary_or_row_keeps_its_sets(train, failing, parallel):
    """Two ranks divide the logits or the tokens of a row, and sample from one engine each."""
    keys = ("algorithm.kl_coef=0.1", TWO, f"hardware.{parallel}_parallel=2")
    one_update = ("train.steps=1", "algorithm.minibatches=1", "algorithm.epochs=1")
    (row,) = train(f"drawn-{parallel}", *one_update, *failing, *DRAWN, *keys)[1].metrics()
    assert row["rollout/logprob_difference"] < 1e-5 and abs(row["kl"]) < 1e-6
    assert row["entropy"] < math.log(20)


@pytest.mark.slow
@pytest.mark.parametrize("keys", [(), ("algorithm.estimator=gae", "algorithm.kl_coef=0.1")])
def test_a_divided_model_becomes_that_of_one_rank(train, keys):
    """Two whole steps with engines that are updated; the critic is divided as the actor is."""
    runs = [
        train(f"divided-{len(keys)}-{len(more)}", *keys, *more)[1]
        for more in ((), (TWO, "hardware.tensor_parallel=2"))
    ]
    one, two = (AutoModelForCausalLM.from_pretrained(made.model).state_dict() for made in runs)
    assert one.keys() == two.keys()
    # AdamW turns the rounding of a gradient near zero into a step: not element by element.
    apart = sum((two[name] - weight).square().sum() for name, weight in one.items())
    assert apart <= 1e-10 * sum(weight.square().sum() for weight in one.values())
    for alone, divided in zip(*(made.metrics() for made in runs), strict=True):
        assert divided["success/mean"] == alone["success/mean"]
        assert divided["grad_norm"] == pytest.approx(alone["grad_norm"], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys",
    [
        ("hardware.gpus_per_node=4", "trainer.rl2.actor.ddp_size=2"),
        (TWO, "trainer.rl2.actor.ddp_size=2"),
        (TWO, "hardware.tensor_parallel=2"),
    ],
)
def test_divided_runs_resume_where_they_stopped(tiny, tmp_path, keys):
    """Each rank's moments of AdamW are in the checkpoint: the resumed step is the same step."""
    recipe = tiny(*SMALL, *keys)
    whole = RunDir.create(tmp_path / "whole", recipe, "rl2")
    run(resolve_run(recipe, "rl2"), whole)
    copy = RunDir(tmp_path / "copy")
    shutil.copytree(whole.path, copy.path)
    shutil.rmtree(copy.checkpoints / "step3")
    shutil.rmtree(copy.model)
    (copy.path / "metrics.jsonl").unlink()
    run(resolve_run(recipe, "rl2"), copy, resume=True)
    (again,) = copy.metrics()
    first = whole.metrics()[2]
    assert again["step"] == 3
    assert again["grad_norm"] == pytest.approx(first["grad_norm"], rel=1e-6)
    weights = [AutoModelForCausalLM.from_pretrained(d.model).state_dict() for d in (whole, copy)]
    for name, weight in weights[0].items():
        torch.testing.assert_close(weights[1][name], weight, rtol=1e-5, atol=1e-7)


def test_ppo_with_a_critic(train):
    _, directory = train("critic", "algorithm.estimator=gae", "algorithm.kl_coef=0.1")
    rows = directory.metrics()
    assert all(row["loss/value"] > 0 and row["grad_norm/critic"] > 0 for row in rows)
    # A mean over the step's updates: zero before the first of them only.
    assert 0 <= rows[0]["kl"] < 0.1 and rows[2]["kl"] > 0


def test_a_run_that_fails_says_why(tiny, tmp_path):
    recipe = tiny(*SMALL, "trainer.rl2.actor.ddp_size=3")
    directory = RunDir.create(tmp_path / "fails", recipe, "rl2")
    with pytest.raises(GemError, match="World_size 1 must be divisible by ddp_size 3"):
        run(resolve_run(recipe, "rl2"), directory)
    assert children(directory.path) == []
    assert not os.path.exists(directory.path / "metrics.jsonl")


def test_the_log_is_kept(plain):
    log = (plain[1].path / "rl2.log").read_text()
    assert "prompts_per_rollout: 8" in log
    assert json.loads((plain[1].path / "recipe.json").read_text())["batch"]["episodes"] == 8
