"""Real optimizer steps of TRL: what is trained on, what is written, what stops a run."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerState
from trl import GRPOTrainer

from gem_conform.metric_names import COMMON
from gem_core.errors import GemError, RecipeError, RunError
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.resolved import resolve_run
from gem_core.runs.tasks import train_task
from gem_parity.frozen import frozen_episodes
from gem_parity.reference import compare, reference
from gem_parity.replay import expected_rows
from gem_trl import launch
from gem_trl.advantages import AdvantageCheck, require_installed
from gem_trl.critic import FILE
from gem_trl.metrics import RunLog
from gem_trl.trainer import GemTrainer


class StockAdvantages(GemTrainer):
    """A trainer that leaves TRL's own advantages in place."""

    def _generate_and_score_completions(self, inputs):
        return GRPOTrainer._generate_and_score_completions(self, inputs)


class OtherAdvantages(GemTrainer):
    """A trainer that changes the advantages after they were installed."""

    def _generate_and_score_completions(self, inputs):
        out = super()._generate_and_score_completions(inputs)
        out["advantages"] = out["advantages"] + 1.0
        return out


@pytest.mark.parametrize("cls, word", [(StockAdvantages, "own"), (OtherAdvantages, "other")])
def test_advantages_that_are_not_ours_stop_the_run_before_the_first_update(make_trainer, cls, word):
    trainer = make_trainer(cls=cls)
    before = {name: p.clone() for name, p in trainer.model.named_parameters()}
    with pytest.raises(GemError, match=word):
        trainer.train()
    assert trainer.state.global_step == 0
    assert all(torch.equal(p, before[name]) for name, p in trainer.model.named_parameters())


def test_the_check_is_always_there(make_trainer):
    kinds = [type(callback) for callback in make_trainer().callback_handler.callbacks]
    assert AdvantageCheck in kinds


def test_advantages_that_were_never_made_are_not_installed(make_trainer):
    trainer = make_trainer()
    trainer._buffered_inputs = [{"advantages": torch.zeros(8, 3)}]
    with pytest.raises(GemError, match="own advantages"):
        require_installed(trainer)


@pytest.fixture
def train(make_recipe, tmp_path):
    """``train(*overrides)``: a whole run in this process; returns its directory."""

    def start(*overrides, name="run", resume=False):
        recipe = make_recipe(*overrides)
        if_exists = "resume" if resume else "error"
        run = RunDir.create(tmp_path / name, recipe, "trl", if_exists)
        launch.run(resolve_run(recipe, "trl"), run, resume=resume)
        return run

    return start


def test_three_steps_end_to_end(train):
    run = train("eval.every=2", "eval.inside_episodes=6", "train.log_episodes=8")
    rows = run.metrics()
    assert [row["step"] for row in rows] == [1, 2, 3]
    for row in rows:
        assert {*COMMON, "episodes/untrained"} <= row.keys()
        assert row["episodes"] == 8
        assert row["time/step"] > row["time/rollout"] > 0
    assert [(e["step"], e["when"], e["episodes"]) for e in run.evals()] == [(2, "during", 6)]
    logged = [episode for tags, episode in run.episodes() if tags["split"] == "train"]
    assert [e.index for e in logged] == list(range(24))
    assert [e.seed for e in logged] == [train_task(run.recipe, k).seed for k in range(24)]
    model = AutoModelForCausalLM.from_pretrained(run.model)
    assert AutoTokenizer.from_pretrained(run.model).eos_token_id == model.config.eos_token_id


def test_epochs_minibatches_kl_and_entropy_train_too(train):
    keys = ["algorithm.epochs=2", "algorithm.minibatches=2", "batch.micro_batch=2"]
    keys += ["algorithm.kl_coef=0.1", "algorithm.entropy_coef=0.01", "algorithm.warmup_steps=1"]
    run = train(*keys, "algorithm.estimator=rloo", "batch.group_size=4")
    assert [row["step"] for row in run.metrics()] == [1, 2, 3]
    assert run.metrics()[-1]["kl"] > 0


def test_a_run_resumes_exactly_where_its_checkpoint_was(train):
    whole = train("train.steps=4", name="whole")
    half = train("train.steps=4", "train.save_every=2", name="half")
    shutil.rmtree(half.model)
    shutil.rmtree(half.checkpoints / "checkpoint-4")
    (half.path / "metrics.jsonl").unlink()
    (half.checkpoints / "checkpoint-4").mkdir()  # what a kill in the middle of saving leaves
    again = train("train.steps=4", "train.save_every=2", name="half", resume=True)
    assert [row["step"] for row in again.metrics()] == [3, 4]
    expected = AutoModelForCausalLM.from_pretrained(whole.model).state_dict()
    resumed = AutoModelForCausalLM.from_pretrained(again.model).state_dict()
    assert all(torch.equal(resumed[name], expected[name]) for name in expected)


def test_ppo_trains_a_critic_and_resumes_with_it(train):
    keys = ["algorithm.estimator=gae", "algorithm.critic_lr=0.01", "train.save_every=2"]
    whole = train(*keys, "train.steps=4", name="whole")
    losses = [row["loss/value"] for row in whole.metrics()]
    assert len(losses) == 4 and all(loss > 0 for loss in losses)
    half = train(*keys, "train.steps=4", name="half")
    critic = half.checkpoints / "checkpoint-4" / FILE
    expected = torch.load(critic, weights_only=True)["model"]
    shutil.rmtree(half.model)
    critic.unlink()  # what a kill between the policy's and the critic's checkpoint leaves
    again = train(*keys, "train.steps=4", name="half", resume=True)
    assert [row["loss/value"] for row in again.metrics()][2:] == losses[2:]
    resumed = torch.load(critic, weights_only=True)["model"]
    assert all(torch.equal(resumed[name], weight) for name, weight in expected.items())


class Watched(GemTrainer):
    """Keeps what the critic read before it learned."""

    def play_step(self, count):
        torch.manual_seed(1)
        self.critic.model[1].weight.data.normal_()
        self.values = []
        read = self.critic.read

        def read_and_keep(states):
            self.values.append(read(states))
            return self.values[-1]

        self.critic.read = read_and_keep
        return super().play_step(count)


def test_gae_reads_the_critic_at_turn_boundaries(make_trainer, scripted):
    keys = ["algorithm.estimator=gae", "algorithm.gamma=0.9", "algorithm.lam=0.8"]
    trainer = make_trainer(*keys, "limits.max_turns=2", "train.steps=1", cls=Watched)
    scripted(trainer, ["\\boxed{5}", "\\boxed{3}", "\\boxed{8}"])
    trainer.train()
    batch = trainer.step_batch
    (values,) = trainer.values
    assert any(len(v) > len(e.turns) for v, e in zip(values, batch.episodes, strict=True))
    for episode, read, advantages in zip(batch.mine, values, batch.advantages, strict=True):
        # After the last turn: the value of the state in which a limit cut it off, or the end's 0.
        following = [*read[1:], 0.0][: len(episode.turns)]
        later = 0.0
        for n in reversed(range(len(episode.turns))):
            delta = episode.turns[n].reward + 0.9 * following[n] - read[n]
            later = delta + 0.9 * 0.8 * later
            assert advantages[n] == pytest.approx(later, abs=1e-9)


def test_unfinished_checkpoints_are_deleted(make_trainer, tmp_path):
    for step in (2, 4, 10):
        (tmp_path / f"checkpoint-{step}").mkdir()
    (tmp_path / "checkpoint-2" / "trainer_state.json").write_text("{}")
    (tmp_path / "checkpoint-10" / "trainer_state.json").write_text("{")
    assert launch.restore(make_trainer(), tmp_path) == str(tmp_path / "checkpoint-2")
    assert {path.name for path in tmp_path.glob("checkpoint-*")} == {"checkpoint-2"}


def test_every_machine_gets_the_same_command(make_recipe, monkeypatch, capfd):
    recipe = make_recipe("hardware.device=gpu", "hardware.nodes=3", "hardware.gpus_per_node=4")
    assert launch.needs_processes(recipe)
    monkeypatch.setenv("GEM_TRL_RENDEZVOUS", "first:29500")
    started = []
    monkeypatch.setattr(launch, "run_process", lambda line: started.append(line) or 0)
    launch.start_processes(recipe, "script", ["--key", "a b"])
    said = capfd.readouterr().out
    assert said.startswith("Start this on each of the other 2 machines: ")
    assert shlex.split(said.partition(": ")[2]) == started[0]
    assert re.search(r"--nproc-per-node=4 --nnodes=3 .*=first:29500 .* -- script --key 'a b'", said)


def test_a_process_that_fails_is_an_error(make_recipe, tmp_path):
    (tmp_path / "script.py").write_text("raise SystemExit(3)")
    with pytest.raises(RunError, match="exit code 1"):
        launch.start_processes(make_recipe(), str(tmp_path / "script.py"), [])


def test_the_launcher_starts_the_recipes_processes(make_recipe, tmp_path, monkeypatch):
    recipe = make_recipe("train.steps=1", "hardware.gpus_per_node=2")
    run = RunDir.create(tmp_path / "run", recipe, "trl")
    started = []
    start = launch.run_process
    monkeypatch.setattr(launch, "run_process", lambda line: started.append(line) or start(line))
    launch.run(resolve_run(recipe, "trl"), run)
    (command,) = started
    assert "--nproc-per-node=2" in command
    assert [row["step"] for row in run.metrics()] == [1]
    assert (run.model / "config.json").exists()


def test_a_killed_run_loses_no_more_than_the_step_under_way(make_recipe, tmp_path):
    keys = ["train.steps=15", "train.save_every=1", "train.log_episodes=8"]
    recipe = make_recipe(*keys)
    run = RunDir.create(tmp_path / "run", recipe, "trl")
    command = [sys.executable, "-m", "gem_trl.launch", str(run.path)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        patience = time.monotonic() + 300
        while len(run.metrics()) < 4 and process.poll() is None:
            assert time.monotonic() < patience
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL
    last = max(row["step"] for row in run.metrics())
    reached = int(launch.last_checkpoint(run.checkpoints).rpartition("-")[2])
    assert last - 1 <= reached <= last
    subprocess.run([*command, "--resume"], check=True, stderr=subprocess.DEVNULL)
    assert [row["step"] for row in run.metrics()] == list(range(1, 16))
    played = [e.index for _, e in run.episodes()]
    assert set(played) == set(range(15 * 8))
    # The step after the checkpoint is played again; some of it was written before the kill.
    assert len(played) - len(set(played)) <= 8


def test_nothing_but_the_advantage_weights_the_loss(make_recipe, tmp_path, model_dir):
    """Gradient parity to 1e-6 for each aggregation, also in micro batches."""
    from gem_replays.trl import replay

    for aggregation in ("token", "sequence", "constant"):
        keys = [f"algorithm.loss_aggregation={aggregation}", "batch.episodes=16"]
        keys += ["algorithm.loss_constant=40"] if aggregation == "constant" else []
        for micro in (16, 4):
            recipe = make_recipe(*keys, f"batch.micro_batch={micro}", "batch.group_size=2")
            batch = frozen_episodes(16, group_size=2)
            replayed = replay(recipe, batch, model_dir)
            model = AutoModelForCausalLM.from_pretrained(model_dir).float()
            expected = reference(recipe, expected_rows(recipe, batch), model)
            cosine, ratio = compare(replayed.gradients, expected.gradients)
            assert cosine >= 1 - 1e-9 and ratio == pytest.approx(1, abs=1e-6), (aggregation, micro)
            assert replayed.loss == pytest.approx(expected.loss, rel=1e-3, abs=1e-5)


def test_a_loss_that_is_not_finite_stops_the_run(make_trainer, make_recipe, tmp_path):
    class Infinite(GemTrainer):
        def _compute_loss(self, model, inputs):
            return super()._compute_loss(model, inputs) * float("inf")

    log = RunLog(RunDir.create(tmp_path / "run", make_recipe(), "trl"))
    trainer = make_trainer(cls=Infinite, callbacks=[log])
    with pytest.raises(GemError, match=r"lower algorithm\.lr"):
        trainer.train()
    assert not log.run.metrics()


def test_a_critic_whose_loss_is_not_finite_stops_the_run(make_trainer, make_recipe, tmp_path):
    class Diverged(GemTrainer):
        def estimate_step(self, episodes):
            batch = super().estimate_step(episodes)
            batch.metrics["loss/value"] *= float("nan")
            return batch

    log = RunLog(RunDir.create(tmp_path / "run", make_recipe(), "trl"))
    trainer = make_trainer("algorithm.estimator=gae", cls=Diverged, callbacks=[log])
    with pytest.raises(GemError, match="loss/value is nan in step 1"):
        trainer.train()
    assert not log.run.metrics()


@pytest.mark.parametrize("first_rank", [True, False])
def test_every_rank_stops_and_the_first_one_writes(make_trainer, tmp_path, first_rank):
    trainer = make_trainer("train.steps=1")
    run = RunDir.create(tmp_path / "run", trainer.recipe, "trl")
    log = RunLog(run)
    log.trainer = trainer
    trainer.train()
    state = TrainerState(global_step=1, is_world_process_zero=first_rank)
    log.on_log(trainer.args, state, None, {"loss": 0.5, "grad_norm": 1.0})
    assert [row["step"] for row in run.metrics()] == [1] * first_rank
    with pytest.raises(GemError, match="grad_norm is inf"):
        log.on_log(trainer.args, state, None, {"loss": 0.5, "grad_norm": float("inf")})
    with pytest.raises(GemError, match="loss/policy is nan"):
        nan = {"loss": float("nan"), "policy_loss": 0.5, "grad_norm": 1.0}
        log.on_log(trainer.args, state, None, nan)


def test_hardware_that_is_not_here_is_refused(make_recipe, tmp_path):
    recipe = make_recipe("hardware.device=gpu", "hardware.engine=default")
    run = RunDir.create(tmp_path / "run", recipe, "trl")
    with pytest.raises(RecipeError, match=r"hardware\.device"):
        launch.run(resolve_run(recipe, "trl"), run)


def test_trained_model_directory_says_what_it_is(train):
    run = train("train.steps=1")
    assert json.loads((run.model / "config.json").read_text())["model_type"] == "qwen3"


def test_sigterm_stops_two_processes_after_the_same_step(tmp_path):
    path = tmp_path / "run"
    command = [sys.executable, "-m", "gem_core.cli", "train", "guess-the-number-easy"]
    command += ["--profile", "tiny", "--trainer", "trl", "--run", str(path)]
    keys = ["train.steps=30", "train.save_every=0", "batch.episodes=8", "eval.episodes=0"]
    keys += ["hardware.gpus_per_node=2", "model.tiny.warm_start_steps=0", "algorithm.epochs=1"]
    command += [part for key in keys for part in ("--set", key)]
    run = RunDir(path)
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        patience = time.monotonic() + 300
        while len(run.metrics()) < 2 and process.poll() is None:
            assert time.monotonic() < patience
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(timeout=300) == 75
    finally:
        process.kill()
        process.wait()
    last = run.metrics()[-1]["step"]
    assert launch.last_checkpoint(run.checkpoints).endswith(f"checkpoint-{last}")
    assert 2 <= last < 30 and not run.model.exists()
    subprocess.run([*command, "--resume"], check=True, stderr=subprocess.DEVNULL)
    assert [row["step"] for row in run.lines("metrics.jsonl")] == list(range(1, 31))
