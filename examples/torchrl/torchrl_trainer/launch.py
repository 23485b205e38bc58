"""The training: TorchRL's loop, with gem-core's episodes as its collector and hooks around it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from msgspec.structs import asdict
from tensordict import TensorDict
from transformers import AutoTokenizer

from gem_adapters.estimate import estimate
from gem_adapters.run_log import log_evaluation, log_step
from gem_adapters.turn_batch import turn_batch
from gem_core.episodes.rollout import play_batch, require_healthy
from gem_core.policies.engine.policy import HFPolicy
from gem_core.policies.models.weights import load_model
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.resolved import ResolvedRun
from gem_core.runs.tasks import MachineFactory, step_tasks
from gem_core.training.stopping import SaveClock, mark_stopped
from gem_core.training.tiny import model_path
from torchrl_trainer.rows import make_rows
from torchrl_trainer.update import Update


def run(resolved: ResolvedRun, run: RunDir, *, resume: bool = False) -> None:
    """Train what is resolved into ``run``, from its last checkpoint with ``resume``.

    Raises:
        RunStopped: training ended because it was asked to.
    """
    torch.set_num_threads(1)  # a fixed number, so that sums come out the same everywhere
    Training(resolved, run, resume=resume).train()


class Training:
    """A run: TorchRL's collector, and the hook after its step."""

    init_random_frames = 0
    """TorchRL asks every collector for it."""

    def __init__(self, resolved: ResolvedRun, run: RunDir, *, resume: bool) -> None:
        self.run, self.recipe = run, resolved.recipe
        recipe, source = self.recipe, resolved.model or model_path(self.recipe)
        revision = recipe.model.revision or "main"
        self.tokenizer = AutoTokenizer.from_pretrained(source, revision=revision)
        self.machines = MachineFactory(recipe, self.tokenizer, envs=resolved.envs)

        def load() -> torch.nn.Module:
            return load_model(source, revision=revision)

        self.model = load()
        self.update = Update(
            self.model,
            self.tokenizer,
            resolved.native,
            initial=load() if recipe.algorithm.kl_coef else None,
            collector=self,
        )
        self.update.trainer.register_op("post_steps", self.after_step)
        self.clock = SaveClock(run)
        self.done = restore(self.update, run) if resume else 0

    def train(self) -> None:
        """Run TorchRL's loop to its end; save the model."""
        self.update.trainer.train()
        self.model.save_pretrained(self.run.model)
        self.tokenizer.save_pretrained(self.run.model)

    def __iter__(self) -> Iterator[TensorDict]:
        """Play the episodes of each step that is left."""
        recipe = self.recipe
        policy = HFPolicy(self.model, self.machines.stop_ids, **asdict(recipe.sampling))
        for step in range(self.done, recipe.train.steps):
            self.began = time.perf_counter()
            tasks = [self.machines(task) for task in step_tasks(recipe, step)]
            self.episodes = play_batch(tasks, policy)
            require_healthy(self.episodes)
            self.played = time.perf_counter()
            self.estimated = estimate(turn_batch(self.episodes), recipe.algorithm)
            yield make_rows(self.episodes, self.estimated.advantages)

    def after_step(self) -> None:
        """Log the step, play an evaluation, save, and end where it was asked for."""
        ended = time.perf_counter()
        times = {"time/rollout": self.played - self.began, "time/update": ended - self.played}
        times["time/step"] = ended - self.began
        metrics = {**self.estimated.metrics, **self.update.stepper.finish(), **times}
        self.done += 1
        log_step(self.run, self.done, self.episodes, metrics)
        if self.recipe.eval.every and self.done % self.recipe.eval.every == 0:
            self.evaluate()
        decision = self.clock.after(self.done)
        if decision.save:
            save(self.update, self.run, self.done)
        if decision.stop:
            raise mark_stopped(self.run, self.done)

    def evaluate(self) -> None:
        """Play the evaluation inside training, and log it."""
        recipe = self.recipe
        sampling = {"temperature": recipe.eval.temperature, "top_p": recipe.eval_top_p}
        sampling["top_k"] = recipe.sampling.top_k
        policy = HFPolicy(self.model, self.machines.stop_ids, **sampling)
        tasks = [self.machines.evaluation(n) for n in range(recipe.eval.inside_episodes)]
        log_evaluation(self.run, self.done, play_batch(tasks, policy))

    def shutdown(self) -> None:
        """TorchRL calls it at the end; there is nothing to close."""


def save(update: Update, run: RunDir, step: int) -> None:
    """Write a checkpoint, whole or not at all; delete the oldest ones."""
    run.checkpoints.mkdir(exist_ok=True)
    unfinished = run.checkpoints / "unfinished"
    torch.save({"step": step, "update": update.state_dict()}, unfinished)
    os.replace(unfinished, run.checkpoints / f"step-{step:06d}.pt")
    for old in checkpoints(run)[: -run.recipe.train.keep_checkpoints]:
        old.unlink()


def restore(update: Update, run: RunDir) -> int:
    """Load the newest checkpoint; return the steps that are done, 0 without one."""
    found = checkpoints(run)
    if not found:
        return 0
    state = torch.load(found[-1], weights_only=True)
    update.load_state_dict(state["update"])
    return int(state["step"])


def checkpoints(run: RunDir) -> list[Path]:
    """Return the checkpoints, the oldest first."""
    return sorted(run.checkpoints.glob("step-*.pt"))
