"""The worker processes and server sessions of a run: ``[workers]`` of the recipe."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from gem_core.env.interface import Env
from gem_core.env.registration import register, spec
from gem_core.env.registration.references import TRUST_VARIABLE, trusted
from gem_core.env.spec import EnvSpec
from gem_core.execution.server_client.opening import Wanted
from gem_core.execution.server_client.session_env import SessionEnv
from gem_core.execution.workers import Builder, WorkerEnv
from gem_core.execution.workers.by_value import pack_definition
from gem_core.execution.workers.child import ask
from gem_core.runs.environments.data import make_for_run
from gem_core.runs.environments.pools import run_pool, run_sessions
from gem_core.runs.environments.tools import count_tokens_with
from gem_core.runs.recipe.tables import EnvConfig, WorkersConfig

_COUNT = "count_tokens"


def run_builder(config: EnvConfig, key: str, *, counts: bool) -> bytes:
    """Return how a worker makes an environment of a run.

    ``counts`` says whether the trainer's process counts the tokens of tools' results.
    """
    registered = spec(config.id)
    arguments = (config, key, registered, counts, trusted())
    target = "gem_core.runs.environments.workers:make_in_worker"
    return Builder(target, arguments, pack_definition(registered)).pack()


def make_in_worker(
    config: EnvConfig, key: str, registered: EnvSpec, counts: bool, trusts: bool
) -> Env:
    """Make an environment in a worker as the trainer's process would, see `make_for_run`.

    Ids that the trainer's process registered itself are registered here, too. A worker on another
    machine has the variables of that one, so that what its trainer trusts is told.
    """
    if trusts:
        os.environ[TRUST_VARIABLE] = "1"
    register(
        registered.id,
        registered.entry_point,
        data_revision=registered.data_revision,
        **registered.kwargs,
    )
    env = make_for_run(config, key)
    if counts:
        count_tokens_with(env, _count_in_trainer)
    return env


def worker_env(
    workers: WorkersConfig,
    builder: bytes,
    deadline_s: float | None,
    encode: Callable[[str], list[int]] | None,
) -> WorkerEnv:
    """Return a new environment in a worker of this process; the tokenizer stays in this process."""

    def answer(name: str, value: Any) -> int:
        if name != _COUNT or encode is None:
            raise ValueError(f"an environment asks for {name!r}")
        return len(encode(value))

    deadline = workers.deadline_s if deadline_s is None else deadline_s
    return WorkerEnv(run_pool(workers), builder, deadline_s=deadline, answer=answer)


def session_env(workers: WorkersConfig, wanted: Wanted, deadline_s: float | None) -> SessionEnv:
    """Return a new environment behind a server; see `worker_env`."""
    deadline = workers.deadline_s if deadline_s is None else deadline_s
    return SessionEnv(run_sessions(workers), wanted, deadline_s=deadline)


def _count_in_trainer(text: str) -> Any:
    """Return as many items as the text has tokens."""
    return range(ask(_COUNT, text))
