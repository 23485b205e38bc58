"""A pool of two workers, and the environment with faults in it and in this process.

With the trainers that bring Ray the same tests run with the workers of a Ray cluster.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path

import pytest

from gem_core.env.registration import register
from gem_core.episodes.rollout import play_batch, play_many
from gem_core.execution.workers import Builder, WorkerEnv, WorkerPool
from gem_core.execution.workers.ray_process import RayProcess, leave_cluster

FOLDER = str(Path(__file__).parent)
if FOLDER not in sys.path:
    sys.path.insert(0, FOLDER)  # workers import from the same folders
import faulty_env  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def faulty_ids():
    """The ids of the environment with faults; other folders' tests collect all ids before."""
    register(faulty_env.ID, "faulty_env:Faulty")
    register(faulty_env.FAST, "faulty_env:Fast")
    register(faulty_env.HEAVY, "faulty_env:Heavy")


@pytest.fixture(params=["play_many", "play_batch"])
def play_all(request):
    """Both ways of playing many machines."""
    if request.param == "play_batch":
        return play_batch
    return lambda machines, policy: asyncio.run(play_many(machines, policy))


@pytest.fixture(scope="session")
def backend(pytestconfig):
    """``process``, or ``ray`` with a trainer that brings it; its cluster ends with the tests."""
    if pytestconfig.getoption("trainer") not in ("verl", "openrlhf"):
        yield "process"
        return
    import ray

    ray.init(include_dashboard=False, log_to_driver=False)  # so it does not end with a run
    yield "ray"
    leave_cluster()
    ray.shutdown()


@pytest.fixture(scope="session")
def new_pool(backend):
    """``new_pool(number, **options)``: a `WorkerPool` of the backend under test."""
    return partial(WorkerPool, new_process=RayProcess if backend == "ray" else None)


@pytest.fixture(scope="session")
def server_table(backend):
    """``[workers]`` for a server that is there; ``None`` beside Ray.

    The environments of verl and OpenRLHF have no ``websockets``; the core's tests have it.
    """
    if backend == "ray":
        yield None
        return
    from served import Served

    server = Served()
    yield {"backend": "server", "address": server.url, "number": None}
    server.kill()


@pytest.fixture(scope="module")
def shared_pool(new_pool):
    pool = new_pool(2)
    yield pool
    pool.close()


@pytest.fixture
def pool(shared_pool):
    """The pool of the module; its tests leave it usable."""
    return shared_pool


@pytest.fixture
def make_in():
    """``make_in(pool, *arguments)``: an environment with faults in a worker."""

    def make(pool, *arguments, target="faulty_env:make", deadline_s=20.0):
        return WorkerEnv(pool, Builder(target, arguments).pack(), deadline_s=deadline_s)

    return make
