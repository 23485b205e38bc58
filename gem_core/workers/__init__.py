"""Environments in worker processes, see docs/workers.md."""

from gem_core.workers.env import WorkerEnv
from gem_core.workers.errors import (
    EnvDeadlineError,
    RemoteError,
    WorkerDiedError,
    WorkerPoolError,
)
from gem_core.workers.pool import WorkerPool
from gem_core.workers.records import Builder
from gem_core.workers.remote_env import RemoteCallsEnv

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
