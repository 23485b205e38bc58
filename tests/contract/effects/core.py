"""What the core makes of a recipe for every trainer, as plain values that can be compared."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import replace
from unittest.mock import patch

import huggingface_hub
import msgspec
import numpy as np

from gem_adapters.estimate import estimate, needs_critic
from gem_adapters.turn_batch import turn_batch
from gem_core.env.interface import Env
from gem_core.episodes.machine import EpisodeMachine
from gem_core.evaluation.contenders import sampling_fields
from gem_core.runs.environments import pools as run_pools
from gem_core.runs.splits import run_envs
from gem_core.runs.tasks import MachineFactory, eval_task, step_tasks
from gem_core.runs.tracking import follow
from gem_core.training.stopping import SaveClock
from gem_core.training.tiny.cache import _settings, model_source
from gem_core.training.warm_start.pretrained import start_settings
from gem_parity.frozen import frozen_episodes

EPISODES = frozen_episodes(16, group_size=2)


def tasks(recipe):
    """The tasks of the first two steps, and of the evaluation."""
    return {
        "train": [step_tasks(recipe, step) for step in (0, 1)],
        "eval": [eval_task(recipe, index) for index in range(4)],
    }


def machines(recipe, tokenizer):
    """The machines of the first tasks of every environment."""
    inline = recipe.workers.backend in ("ray", "server")
    factory = MachineFactory(recipe, tokenizer, inline=inline)
    chosen = {}
    for task in [*step_tasks(recipe, 0), *(eval_task(recipe, index) for index in range(4))]:
        chosen.setdefault((task.split, task.env), task)
    try:
        return {place: machine(factory(task)) for place, task in chosen.items()}
    finally:
        run_pools.close_run_pools(None)


def machine(made: EpisodeMachine):
    """Limits, prompt, seeds and environment of a machine."""
    context = made.context
    template = context.template
    return {
        "limits": msgspec.to_builtins(made.limits),
        "seeds": (made.seed, made.request_seed, made.index, made.env_id),
        "template": (template.first, template.next, template.close, template.tool),
        "renders": template.renderer is not None,
        "history": (context.history, context.window, context.compact),
        "stop": sorted(context.tokenizer.stop_ids),
        "env": environment(made.env),
    }


def environment(env: Env):
    """The classes of an environment and its wrappers with their plain attributes."""
    layers = []
    while env is not None:
        plain = {name: value for name, value in vars(env).items() if _is_plain(value)}
        spec = getattr(env, "spec", None)
        layers.append((type(env).__name__, plain, spec and (spec.id, repr(spec.kwargs))))
        env = vars(env).get("env")
    return layers


def _is_plain(value):
    return isinstance(value, (bool, int, float, str, tuple)) or value is None


def workers(recipe):
    """The pool of workers or sessions that a process of the run would have."""
    settings = recipe.workers
    if settings.backend in ("inline", "thread"):
        return settings.backend
    if settings.backend == "server":
        pool = run_pools.new_session_pool(settings)
        seen = (pool.addresses, pool._restart)
    else:
        joined = []
        with patch.object(run_pools, "join_cluster", joined.append):
            pool = run_pools._new_pool(settings)
        fleet = pool._fleet
        kind = fleet._new_process.__name__
        seen = (joined, pool.number, fleet.restart, fleet.max_restarts, kind)
    pool.close()
    return seen


def evaluation(recipe):
    """How evaluations before and after training sample, by whom, and how many they are."""
    return sampling_fields(recipe), recipe.eval.engine, recipe.eval.episodes, recipe.eval.greedy


def trackers(run):
    """The trackers of the run, and the project that they are told."""
    opened = []
    with (
        patch.object(follow, "_Sender", lambda name, _, project: opened.append((name, project))),
        patch.object(follow, "watched", lambda *_: nullcontext()),
        patch.object(follow, "_close", lambda *_: None),
        follow.tracked(run, print),
    ):
        return opened


def saves(run):
    """After which of the first steps a checkpoint is due, ten minutes passing in each."""
    now = time.monotonic()
    minutes = 10.05
    clock = SaveClock(run)
    train = run.recipe.train
    due = []
    for step in range(1, train.save_every + 6):
        with patch.object(time, "monotonic", lambda step=step: now + 60 * minutes * step):
            due.append(clock.after(step).save)
    return due


def tiny(recipe):
    """What the weights of the tiny model depend on."""
    return _settings(recipe, run_envs(recipe)) if recipe.model.path == "tiny" else None


def source(recipe):
    """Where a trainer loads the model from; nothing is downloaded."""
    if recipe.model.path == "tiny":
        return None
    if recipe.model.warm_start.steps:
        return start_settings(recipe, run_envs(recipe), {})
    with patch.object(huggingface_hub, "snapshot_download", lambda *of, **at: (of, at)):
        return model_source(recipe)


def advantages(recipe):
    """The advantages of the frozen episodes, and the critic's targets."""
    batch = turn_batch(EPISODES)
    if needs_critic(recipe):
        values = np.linspace(-1, 1, len(batch))
        batch = replace(batch, values=values, bootstrap=values / 2)
    result = estimate(batch, recipe.algorithm)
    targets = None if result.targets is None else result.targets.tolist()
    return result.advantages.tolist(), targets
