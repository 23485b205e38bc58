"""Environment workers on two nodes of a Ray cluster, of which one ends in the middle of a rollout.

The other tests of workers on Ray are those of `tests/workers`, run with this trainer.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import ray

from gem_core.execution.workers import Builder, WorkerEnv, WorkerPool, WorkerPoolError, ray_process
from gem_core.execution.workers.ray_process import AVOID_S, RayProcess

PROGRAM = Path(__file__).parents[2] / "workers" / "two_nodes.py"


@pytest.mark.slow
def test_a_node_that_ends_costs_the_calls_it_was_running():
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], capture_output=True, text=True, timeout=300
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert done.returncode == 0 and lines, done.stdout[-2000:] + done.stderr[-4000:]
    told = json.loads(lines[-1].removeprefix("RESULT "))
    theirs, ours = told["nodes"]
    assert theirs >= 1 and ours >= 1 and theirs + ours == 4
    assert told["before"] == {"terminated": 40}
    # Every episode has its end; those of the node's calls say why, the others were not touched.
    assert sum(told["reasons"].values()) == 200
    assert set(told["reasons"]) == {"terminated", "env_error"}
    assert 1 <= told["reasons"]["env_error"] <= 50 == told["concurrency"]
    assert sum(told["errors"].values()) == told["reasons"]["env_error"]
    assert all("WorkerDiedError" in error for error in told["errors"])
    assert told["restarts"] >= theirs and told["workers"] == 4
    assert told["left"] == told["after"] == []


@pytest.fixture(scope="module")
def ray_here():
    """Ray on this machine."""
    ray.init(include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture
def cluster(ray_here, monkeypatch):
    """Ray, and no memory of nodes that failed or of workers of another test."""
    monkeypatch.setattr(ray_process, "_failed", {})
    monkeypatch.setattr(ray_process, "_idle", [])


def on_ended_nodes(count):
    """The making of actors, of which the first end before they run, as on a node that has ended."""
    original = ray_process._new_launcher
    left = iter(range(count))

    def new_launcher():
        node, actor = original()
        number = next(left, None)
        if number is None:
            return node, actor
        ray.kill(actor)
        return f"ended-{number}", actor

    return new_launcher


def played():
    """One episode's reset and step in a pool of one worker; the workers that were replaced."""
    pool = WorkerPool(1, new_process=RayProcess)
    try:
        builder = Builder("gem_core.env.registration:make", ("game:GuessTheNumber-v0-easy",))
        env = WorkerEnv(pool, builder.pack())
        env.reset(seed=0)
        env.step("\\boxed{1}")
        env.close()
        return pool.restarts
    finally:
        pool.close()


@pytest.mark.parametrize("count", [1, 2])
def test_a_worker_is_asked_for_elsewhere_where_ray_did_not_see_that_a_node_ended(
    cluster, monkeypatch, count
):
    monkeypatch.setattr(ray_process, "_new_launcher", on_ended_nodes(count))
    assert played() == 0
    assert sorted(ray_process._failed) == [f"ended-{number}" for number in range(count)]


def test_where_no_node_works_the_worker_has_failed(cluster, monkeypatch):
    monkeypatch.setattr(ray_process, "_new_launcher", on_ended_nodes(3))
    assert played() == 1  # the next worker finds one


def test_where_ray_sees_no_node_the_call_fails_and_says_so(cluster, monkeypatch):
    monkeypatch.setattr(ray, "nodes", list)
    with pytest.raises(WorkerPoolError, match="no node of the Ray cluster answers"):
        played()


def test_a_node_on_which_an_actor_failed_is_avoided_for_a_while(cluster, monkeypatch):
    node = {"Alive": True, "Resources": {"CPU": 1.0}}
    nodes = [{**node, "NodeID": name} for name in "abc"]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    now = time.monotonic()
    ray_process._failed.update({"a": now, "b": now - AVOID_S - 1})
    assert [found["NodeID"] for found in ray_process._nodes()] == ["b", "c"]
    ray_process._failed.update({"b": now, "c": now})
    assert [found["NodeID"] for found in ray_process._nodes()] == ["a", "b", "c"]
