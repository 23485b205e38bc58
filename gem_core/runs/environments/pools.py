"""The pools of this process for a run: its worker processes, its sessions on servers."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from gem_core.execution.server_client.session_pool import SessionPool
from gem_core.execution.workers import WorkerPool
from gem_core.execution.workers.ray_process import RayProcess, join_cluster, leave_cluster
from gem_core.runs.directory.run_dir import RUN_VARIABLE
from gem_core.runs.environments.servers import new_session_pool
from gem_core.runs.recipe.tables import WorkersConfig

_pools: dict[tuple[WorkersConfig, str | None], WorkerPool | SessionPool] = {}
_lock = threading.Lock()


def run_pool(workers: WorkersConfig) -> WorkerPool:
    """Return the workers of this process for the run that it belongs to."""
    pool = _pool_of(workers, _new_pool)
    assert isinstance(pool, WorkerPool)
    return pool


def run_sessions(workers: WorkersConfig) -> SessionPool:
    """Return the sessions of this process on the servers of the run that it belongs to."""
    pool = _pool_of(workers, new_session_pool)
    assert isinstance(pool, SessionPool)
    return pool


def close_run_pools(run: str | None) -> None:
    """End what this process has for a run, workers and sessions; ``None``: for no run."""
    with _lock:
        pools = [_pools.pop(key) for key in list(_pools) if key[1] == run]
    for pool in pools:
        pool.close()
    if not any(workers.backend == "ray" for workers, _ in _pools):
        leave_cluster()


def _pool_of(
    workers: WorkersConfig, new: Callable[[WorkersConfig], WorkerPool | SessionPool]
) -> WorkerPool | SessionPool:
    key = (workers, os.environ.get(RUN_VARIABLE))
    with _lock:
        pool = _pools.get(key)
        if pool is None or pool.closed:
            pool = new(workers)
            _pools[key] = pool
        return pool


def _new_pool(workers: WorkersConfig) -> WorkerPool:
    process = None
    if workers.backend == "ray":
        assert workers.address is None or isinstance(workers.address, str)  # the recipe is checked
        join_cluster(workers.address)
        process = RayProcess
    return WorkerPool(
        workers.number,
        restart=workers.restart,
        max_restarts=workers.max_restarts,
        new_process=process,
    )
