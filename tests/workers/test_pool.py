"""Environments in worker processes: the same results, and faults that cost what they must."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from random import Random

import faulty_env
import pytest

from gem_core.env.registration import make
from gem_core.errors import EpisodeStateError, GemError
from gem_core.execution.workers import (
    Builder,
    EnvDeadlineError,
    RemoteError,
    WorkerDiedError,
    WorkerEnv,
    WorkerPool,
)

PARENT = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from gem_core.execution.workers import *
from gem_core.execution.workers.ray_process import RayProcess, join_cluster
if sys.argv[3] == "ray":
    join_cluster(None)
pool = WorkerPool(2, new_process=RayProcess if sys.argv[3] == "ray" else None)
envs = [WorkerEnv(pool, Builder("faulty_env:make", (True,)).pack()) for _ in range(4)]
for env in envs:
    env.reset(seed=1)
envs[0].submit("step", sys.argv[2])
time.sleep(0.5)
print(*pool.pids, flush=True)
time.sleep(60)
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(holds, seconds=10.0):
    ends_at = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends_at
        time.sleep(0.01)


def test_it_plays_as_the_environment_itself(pool):
    here = make("game:Mastermind-v0-easy")
    builder = Builder("gem_core.env.registration:make", ("game:Mastermind-v0-easy",)).pack()
    there = WorkerEnv(pool, builder)
    assert there.slow and there.spec is None
    rng_here, rng_there = Random(1), Random(1)
    for seed in (3, None):
        assert there.reset(seed=seed) == here.reset(seed=seed)
        for _ in range(4):
            action = here.random_action(rng_here)
            assert there.random_action(rng_there) == action
            assert there.step(action) == here.step(action)
    assert there.spec == here.spec and there.version == here.version
    assert there.get_state() == here.get_state()
    copy = WorkerEnv(pool, builder)
    copy.set_state(here.get_state())
    assert copy.step("\\boxed{1 2 3 4}") == here.step("\\boxed{1 2 3 4}")
    there.close()
    there.close()
    with pytest.raises(EpisodeStateError, match="closed: make a new one"):
        there.reset()


@pytest.mark.parametrize(
    ("kind", "error", "text"),
    [
        ("exception", RemoteError, "broken on purpose"),
        ("memory", RemoteError, "no memory on purpose"),
        ("quit", RemoteError, "3"),
        ("exit", WorkerDiedError, r"ended in step\(\): it exited with status 7"),
        ("kill", WorkerDiedError, r"ended in step\(\): it was ended by SIGKILL"),
        ("hang", EnvDeadlineError, "did not answer within 0.3 s"),
        ("busy", EnvDeadlineError, "did not answer within 0.3 s"),
        ("regex", EnvDeadlineError, "did not answer within 0.3 s"),
    ],
)
@pytest.mark.parametrize("slow", [False, True])
def test_a_fault_costs_its_environment_only(make_in, pool, kind, error, text, slow):
    """Four environments in two workers; the others of the worker that ends do not notice."""
    envs = [make_in(pool, slow) for _ in range(4)]
    here = [faulty_env.Faulty(slow) for _ in range(4)]
    for seed, (env, twin) in enumerate(zip(envs, here, strict=True)):
        assert env.reset(seed=seed) == twin.reset(seed=seed)
        assert env.step("a") == twin.step("a")
    envs[0].deadline_s = 0.3
    with pytest.raises(error, match=text) as raised:
        envs[0].step(kind)
    if kind == "exception":
        assert type(raised.value).__name__ == "KeyError"
        assert "break_in" in raised.value.remote_traceback
    for env, twin in zip(envs[1:], here[1:], strict=True):
        assert env.step("b") == twin.step("b")
    assert envs[0].reset(seed=9) == here[0].reset(seed=9)  # and the broken one can start again
    assert len(pool.pids) <= 2
    for env in envs:
        env.close()


def test_a_worker_that_is_killed_between_calls_costs_nothing(make_in, pool):
    envs = [make_in(pool) for _ in range(4)]
    here = [faulty_env.Faulty() for _ in range(4)]
    for seed, (env, twin) in enumerate(zip(envs, here, strict=True)):
        assert env.reset(seed=seed) == twin.reset(seed=seed)
        assert env.step("a") == twin.step("a")
    for pid in pool.pids:
        os.kill(pid, 9)
    for env, twin in zip(envs, here, strict=True):
        assert env.step("b") == twin.step("b")
        env.close()


def test_without_replay_the_others_end_too(make_in, new_pool):
    pool = new_pool(1, restart="fail")
    first, second = make_in(pool), make_in(pool)
    first.reset(seed=1)
    second.reset(seed=2)
    with pytest.raises(WorkerDiedError):
        first.step("exit")
    with pytest.raises(WorkerDiedError, match="during another one's call"):
        second.step("a")
    with pytest.raises(WorkerDiedError, match="during its last call"):
        first.step("a")
    assert second.reset(seed=2) == faulty_env.Faulty().reset(seed=2)
    pool.close()


def test_calls_that_may_block_do_not_wait_for_each_other(make_in, pool, tmp_path):
    """Each step waits until all sixteen are under way; one after another they never would be."""
    envs = [make_in(pool, True) for _ in range(16)]
    for env in envs:
        env.reset(seed=1)
    sent = [env.submit("step", f"meet 16 {k} {tmp_path}") for k, env in enumerate(envs)]
    assert len({env.receive(one)[1] for env, one in zip(envs, sent, strict=True)}) == 1


def test_a_deadline_does_not_count_what_waits_for_a_serial_environment(make_in, new_pool):
    """Twenty resets of 0.05 s in one worker, each with a deadline of 0.5 s."""
    pool = new_pool(1)
    envs = [make_in(pool, False, 3, "", 0.05, target="faulty_env:fast") for _ in range(20)]
    futures = []
    for env in envs:
        env.deadline_s = 0.5
        futures.append(env.submit("reset", seed=1))
    assert len({env.receive(future)[0] for env, future in zip(envs, futures, strict=True)}) == 1
    assert pool.restarts == 0
    pool.close()


def test_messages_of_many_megabytes_pass(make_in, pool):
    env = make_in(pool)
    env.reset(seed=1)
    text = "x" * 8_000_000
    assert env.step(text)[0].startswith(text + ": ")
    env.close()


def test_what_cannot_be_sent_is_said(make_in, pool):
    env = make_in(pool, target="faulty_env:unpicklable")
    with pytest.raises(TypeError, match="the arguments of reset cannot be sent"):
        env.reset(options={"lock": threading.Lock()})
    env.reset(seed=1)
    with pytest.raises(RemoteError, match=r"cannot be sent to the trainer's process .*: return pl"):
        env.step("a")
    with pytest.raises(TypeError, match="the arguments of reset cannot be sent"):
        env.reset(options={"lock": threading.Lock()})
    env.close()


@pytest.mark.parametrize("kind", ["exception", "exit"])
def test_an_environment_that_cannot_be_built(make_in, pool, kind):
    env = make_in(pool, False, 3, kind)
    error = RemoteError if kind == "exception" else WorkerDiedError
    with pytest.raises(error):
        env.reset(seed=1)
    with pytest.raises(error):
        env.reset(seed=1)
    env.close()


def test_environments_that_nobody_keeps_leave_their_worker(make_in, pool):
    env = make_in(pool)
    env.reset(seed=1)
    worker = env._handle.worker
    count = len(worker.handles)
    del env
    gc.collect()
    wait_until(lambda: len(worker.handles) == count - 1)


def test_too_many_replacements_stop_the_run(make_in, new_pool):
    pool = new_pool(1, max_restarts=1)
    env = make_in(pool)
    for _ in range(2):
        env.reset(seed=1)
        with pytest.raises(WorkerDiedError):
            env.step("exit")
    with pytest.raises(GemError, match="2 environment workers had to be replaced: repair"):
        env.reset(seed=1)
    pool.close()


def test_workers_that_do_not_start_stop_the_run(make_in, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")  # of this process: not in an actor
    pool = WorkerPool(1)
    with pytest.raises(GemError, match="3 environment workers in a row ended before they were"):
        make_in(pool).reset(seed=1)
    pool.close()


def test_closing_ends_workers_and_what_they_started(make_in, new_pool):
    pool = new_pool(2)
    envs = [make_in(pool, True, target="faulty_env:with_child") for _ in range(2)]
    children = [int(env.reset(seed=1)[1]["child"]) for env in envs]
    hung = envs[0].submit("step", "hang")
    pids = [*pool.pids, *children]
    assert len(pids) == 4 and all(map(alive, pids))
    began = time.monotonic()
    pool.close()
    assert time.monotonic() - began < 30
    wait_until(lambda: not any(map(alive, pids)))
    with pytest.raises(GemError, match="closed"):
        envs[0].receive(hung)
    with pytest.raises(GemError, match="is closed: make a new one"):
        envs[1].reset()


@pytest.mark.parametrize("kind", ["hang", "busy", "regex"])
def test_workers_end_with_their_parent(kind, backend):
    command = [sys.executable, "-c", PARENT, str(Path(__file__).parent), kind, backend]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 2 and all(map(alive, pids))
    parent.kill()
    parent.wait()
    wait_until(lambda: not any(map(alive, pids)))
    parent.stdout.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_leaves_the_workers_alone(make_in, pool):
    env = make_in(pool)
    first = env.reset(seed=1)
    child = os.fork()
    if child == 0:
        with_own = make_in(WorkerPool(1)).reset(seed=1) == first
        os._exit(0 if with_own and pool.closed else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert env.reset(seed=1) == first
    env.close()
