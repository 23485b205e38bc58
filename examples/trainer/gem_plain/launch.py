"""The training loop: play, estimate, learn, log, save."""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
from msgspec.structs import asdict
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
from gem_plain.learner import Learner
from gem_plain.rows import make_rows


def run(resolved: ResolvedRun, run: RunDir, *, resume: bool = False) -> None:
    """Train what is resolved into ``run``, from its last checkpoint with ``resume``.

    Raises:
        RunStopped: training ended because it was asked to.
    """
    torch.set_num_threads(1)  # a fixed number, so that sums come out the same everywhere
    recipe = resolved.recipe
    source, revision = resolved.model or model_path(recipe), recipe.model.revision or "main"
    tokenizer = AutoTokenizer.from_pretrained(source, revision=revision)
    model = load_model(source, revision=revision)
    learner = Learner(model, resolved.native)
    machines = MachineFactory(recipe, tokenizer, envs=resolved.envs)
    policy = HFPolicy(model, machines.stop_ids, **asdict(recipe.sampling))
    clock = SaveClock(run)
    for step in range(restore(learner, run) if resume else 0, recipe.train.steps):
        began = time.perf_counter()
        episodes = play_batch([machines(task) for task in step_tasks(recipe, step)], policy)
        require_healthy(episodes)
        played = time.perf_counter()
        estimated = estimate(turn_batch(episodes), recipe.algorithm)
        metrics = learner.learn(make_rows(episodes, estimated.advantages), len(episodes))
        ended = time.perf_counter()
        times = {"time/rollout": played - began, "time/update": ended - played}
        times["time/step"] = ended - began
        log_step(run, step + 1, episodes, {**estimated.metrics, **metrics, **times})
        if recipe.eval.every and (step + 1) % recipe.eval.every == 0:
            evaluate(run, step + 1, model, machines)
        decision = clock.after(step + 1)
        if decision.save:
            save(learner, run, step + 1)
        if decision.stop:
            raise mark_stopped(run, step + 1)
    model.save_pretrained(run.model)
    tokenizer.save_pretrained(run.model)


def evaluate(run: RunDir, step: int, model: torch.nn.Module, machines: MachineFactory) -> None:
    """Play the evaluation inside training, and log it."""
    recipe = run.recipe
    sampling = {"temperature": recipe.eval.temperature, "top_p": recipe.eval_top_p}
    policy = HFPolicy(model, machines.stop_ids, **sampling, top_k=recipe.sampling.top_k)
    count = recipe.eval.inside_episodes
    log_evaluation(run, step, play_batch([machines.evaluation(n) for n in range(count)], policy))


def save(learner: Learner, run: RunDir, step: int) -> None:
    """Write a checkpoint, whole or not at all; delete the oldest ones."""
    run.checkpoints.mkdir(exist_ok=True)
    state = {"step": step, "updates": learner.updates, "model": learner.model.state_dict()}
    unfinished = run.checkpoints / "unfinished"
    torch.save(state | {"optimizer": learner.optimizer.state_dict()}, unfinished)
    os.replace(unfinished, run.checkpoints / f"step-{step:06d}.pt")
    for old in checkpoints(run)[: -run.recipe.train.keep_checkpoints]:
        old.unlink()


def restore(learner: Learner, run: RunDir) -> int:
    """Load the newest checkpoint; return the steps that are done, 0 without one."""
    found = checkpoints(run)
    if not found:
        return 0
    state = torch.load(found[-1], weights_only=True)
    learner.model.load_state_dict(state["model"])
    learner.optimizer.load_state_dict(state["optimizer"])
    learner.updates = state["updates"]
    return int(state["step"])


def checkpoints(run: RunDir) -> list[Path]:
    """Return the checkpoints, the oldest first."""
    return sorted(run.checkpoints.glob("step-*.pt"))
