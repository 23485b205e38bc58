"""How many of the evaluation's tasks are also trained on.

Training and evaluation have different seeds, but a small environment has few initial states
(GuessTheNumber-easy has 10), so that different seeds give the same task. Questions of a data set
that both read are divided between them (`gem_core.runs.splits`); whether the same question is
in another data set or split is seen here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from gem_core.env.interface import Env
from gem_core.envs.parts import normalise
from gem_core.envs.single_turn import SingleTurn
from gem_core.errors import DataError, MissingDependencyError
from gem_core.runs.environments.data import make_for_run
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.splits import RunEnv, RunEnvs, run_envs
from gem_core.runs.tasks import Task, eval_task, train_task

MAX_TRAINING_TASKS = 20_000
"""Training tasks that are compared, the first ones of the run; more take too long to make."""
_MAY_BLOCK = "gem_core.execution.server_client."
"""The package whose environments call another process."""


def task_overlap(recipe: Recipe, envs: RunEnvs | None = None) -> dict[str, int] | None:
    """Count the distinct tasks of the evaluation, and how many of them the training plays.

    It resets environments and plays nothing. Two tasks are the same if the first observation and
    the state of the environment agree, the generator of random numbers aside; without
    ``get_state``, if the observations agree; for environments of one question, if the questions
    agree up to white space and case, whatever the data set, the row and the answer format. So what
    an environment draws after the reset makes no difference: Minesweeper, which lays its mines at
    the first move, counts as one task. Tasks of an earlier run (``train.start``) and of the tiny
    model's warm start are not counted.

    Returns:
        ``episodes`` of the evaluation, ``distinct`` tasks among them, ``seen_in_training`` of
        these, ``training_tasks`` of the run (one per group) and how many were ``compared``.
        ``None`` where an environment of another package or of a server does not declare itself
        ``fast``: a call of it may block, and here is no deadline. Also where the run plays behind
        servers (``workers.backend``), and an environment cannot be made here.
    """
    envs = run_envs(recipe) if envs is None else envs
    try:
        training = _make(envs["train"])
        evaluation = _make(envs["eval"])
    except (DataError, MissingDependencyError):
        if recipe.workers.backend != "server":
            raise
        return None
    try:
        if not all(_never_blocks(env) for env in [*training, *evaluation]):
            return None
        episodes = recipe.eval.episodes
        total = recipe.train.steps * recipe.groups_per_step
        compared = min(total, MAX_TRAINING_TASKS)
        size = recipe.batch.group_size
        evaluated = _identities(evaluation, (eval_task(recipe, k) for k in range(episodes)))
        trained = _identities(training, (train_task(recipe, k * size) for k in range(compared)))
    finally:
        for env in [*training, *evaluation]:
            env.close()
    return {
        "episodes": episodes,
        "distinct": len(evaluated),
        "seen_in_training": len(evaluated & trained),
        "training_tasks": total,
        "compared": compared,
    }


def _make(envs: Iterable[RunEnv]) -> list[Env]:
    """Make environments without their tools, which do not change the task."""
    from msgspec.structs import replace

    return [make_for_run(replace(config, tools=None), key) for config, key in envs]


def overlap_in_words(counts: dict[str, int] | None) -> str:
    """Return the counts of `task_overlap` as one line for the log."""
    if counts is None:
        return (
            "Evaluation tasks: not compared with those of training (an environment may block, or "
            "is not here)"
        )
    compared = counts["compared"]
    among = f" (the first {compared} tasks of it)" if compared < counts["training_tasks"] else ""
    return (
        f"Evaluation tasks: {counts['episodes']} episodes, "
        f"{_seen(counts['distinct'], counts['seen_in_training'])}{among}"
    )


def _seen(distinct: int, seen: int) -> str:
    if distinct == 1:
        return f"1 distinct task, {'also' if seen else 'not'} in training"
    if seen == 0:
        return f"{distinct} distinct tasks, none of them in training"
    which = f"all {seen}" if seen == distinct else f"{seen} of them"
    return f"{distinct} distinct tasks, {which} also in training"


def _never_blocks(env: Env) -> bool:
    """Return whether a reset is made by code of gem_core alone."""
    module = type(env.unwrapped).__module__
    return env.fast or (module.startswith("gem_core.") and not module.startswith(_MAY_BLOCK))


def _identities(envs: list[Env], tasks: Iterable[Task]) -> set[str]:
    return {_identity(envs[task.env], task.seed) for task in tasks}


def _identity(env: Env, seed: int) -> str:
    observation, info = env.reset(seed=seed)
    inner = env.unwrapped
    if isinstance(inner, SingleTurn):
        return normalise(inner.question)
    state = _without_generator(env.get_state()) if hasattr(env, "get_state") else None
    return json.dumps([observation, info.get("suffix"), state], sort_keys=True)


def _without_generator(state: Any) -> Any:
    """Return a state without the generators of random numbers in it, which differ by seed."""
    if isinstance(state, dict):
        return {key: _without_generator(item) for key, item in state.items() if key != "rng"}
    if isinstance(state, list):
        return [_without_generator(item) for item in state]
    return state
