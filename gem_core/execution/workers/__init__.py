"""Environments in worker processes, see docs/workers.md."""

from gem_core.env.remote.env import RemoteCallsEnv
from gem_core.env.remote.errors import (
    EnvDeadlineError,
    RemoteError,
    WorkerDiedError,
    WorkerPoolError,
)
from gem_core.execution.workers.env import WorkerEnv
from gem_core.execution.workers.pool import WorkerPool
from gem_core.execution.workers.records import Builder

__all__ = [
    "Builder",
    "EnvDeadlineError",
    "RemoteCallsEnv",
    "RemoteError",
    "WorkerDiedError",
    "WorkerEnv",
    "WorkerPool",
    "WorkerPoolError",
]
