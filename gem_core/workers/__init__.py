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

__all__ = [
    "Builder",
    "EnvDeadlineError",
    "RemoteError",
    "WorkerDiedError",
    "WorkerEnv",
    "WorkerPool",
    "WorkerPoolError",
]
