"""The parts of the pool: marks in shared memory, replies in few writes, threads, waiting calls."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from functools import partial

import pytest

from gem_core.env.remote.outcome import Outcome
from gem_core.execution.workers import WorkerDiedError, WorkerPool
from gem_core.execution.workers.job_threads import JobThreads
from gem_core.execution.workers.marks import SLOTS, Marks, create_memory
from gem_core.execution.workers.messages import PIECE, Unpacker, pack
from gem_core.execution.workers.replies import Replies


@pytest.fixture
def marks():
    """The marks of one memory, as a worker and as its parent see them."""
    number = create_memory()
    yield Marks(number), Marks(number)
    os.close(number)


def test_a_parent_reads_which_calls_run_and_since_when(marks):
    child, parent = marks
    assert parent.running() == {}
    before = time.monotonic()
    child.begin(0, 7, builds=True)
    child.begin(SLOTS - 1, 9, builds=False)
    running = parent.running()
    assert {call: builds for call, (_, builds) in running.items()} == {7: True, 9: False}
    assert all(before <= since <= time.monotonic() for since, _ in running.values())
    child.begin(0, 7, builds=False)
    assert parent.running()[7][0] >= running[7][0] and parent.running()[7][1] is False
    child.end(0)
    assert list(parent.running()) == [9]


WRITER = """
import sys, time
from gem_core.execution.workers.marks import Marks
marks = Marks(int(sys.argv[1]))
while True:
    marks.begin(0, time.monotonic_ns(), builds=False)
    marks.end(0)
"""


def test_no_call_ever_has_the_beginning_of_another_one():
    """A call's number is the time before its beginning, which the mark must not precede."""
    number = create_memory()
    parent = Marks(number)
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(number)], pass_fds=[number])
    seen = set()
    try:
        while len(seen) < 50:
            assert writer.poll() is None
            for call, (since, _) in parent.running().items():
                seen.add(call)
                assert since >= call / 1e9 - 1e-9
    finally:
        writer.kill()
        writer.wait()
        os.close(number)


def received(connection, count):
    unpacker, messages, pieces = Unpacker(), [], 0
    while len(messages) < count:
        messages += unpacker.feed(connection.recv(PIECE))
        pieces += 1
    return messages, pieces


def test_replies_that_are_held_leave_with_the_next_one():
    ours, theirs = socket.socketpair()
    replies = Replies(theirs)
    for number in range(20):
        replies.hold(("done", number))
    replies.send(("done", 20))
    messages, pieces = received(ours, 21)
    assert sorted(message[1] for message in messages) == list(range(21))
    assert pieces <= 3  # not 21
    ours.close()


def test_a_reply_is_not_held_while_the_next_call_takes_long():
    ours, theirs = socket.socketpair()
    ours.settimeout(5.0)
    Replies(theirs).hold(("done", 1))
    assert received(ours, 1)[0] == [("done", 1)]
    ours.close()


def test_messages_travel_together_and_in_pieces():
    data = pack([1, "two"]) + pack([(3,)])
    unpacker = Unpacker()
    assert [m for k in range(len(data)) for m in unpacker.feed(data[k : k + 1])] == [1, "two", (3,)]
    assert list(Unpacker().feed(data)) == [1, "two", (3,)]


def test_jobs_that_block_do_not_keep_others_waiting():
    threads = JobThreads(8, first_slot=2)
    done = threading.Semaphore(0)
    all_run = threading.Barrier(8)
    for _ in range(8):  # starts all threads
        threads.submit(lambda slot: (all_run.wait(10), done.release()))
    assert all(done.acquire(timeout=10) for _ in range(8))
    stop = threading.Event()
    slots = set()

    def blocks(slot):
        slots.add(slot)
        stop.wait(20)
        done.release()

    for _ in range(7):
        threads.submit(blocks)
    for _ in range(500):
        threads.submit(lambda slot: done.release())
    assert all(done.acquire(timeout=2) for _ in range(500))
    assert not done.acquire(blocking=False) and len(slots) == 7 and slots <= set(range(2, 10))
    stop.set()
    assert all(done.acquire(timeout=10) for _ in range(7))


def test_more_jobs_than_threads_are_all_done():
    threads = JobThreads(3, first_slot=0)
    running, most, done = [], [], threading.Semaphore(0)

    def job(slot):
        running.append(slot)
        most.append(len(running))
        time.sleep(0.01)
        running.remove(slot)
        done.release()

    for _ in range(30):
        threads.submit(job)
    assert all(done.acquire(timeout=10) for _ in range(30))
    assert max(most) == 3


def futures_of(envs, method, **named):
    return [env.submit(method, **named) for env in envs]


def test_first_calls_wait_for_a_worker_with_time(make_in):
    """A worker that is slow with its calls gets fewer environments than the other one."""
    pool = WorkerPool(2)
    arguments = (False, 3, "", 0.05)
    warm = [make_in(pool, *arguments, target="faulty_env:fast") for _ in range(2)]
    for env, future in zip(warm, futures_of(warm, "reset", seed=0), strict=True):
        env.receive(future)
    hangs = warm[0].submit("step", "nap")  # this worker is busy for a second
    envs = [make_in(pool, *arguments, target="faulty_env:fast") for _ in range(12)]
    for env, future in zip(envs, futures_of(envs, "reset", seed=1), strict=True):
        env.deadline_s = 20.0
        assert env.receive(future)[0].startswith("draw")
    shares = sorted(
        sum(env._handle.worker is worker for env in envs) for worker in pool._fleet.workers
    )
    assert shares[0] <= 4 and sum(shares) == 12
    warm[0].receive(hangs)
    pool.close()


def test_first_calls_that_wait_survive_a_worker_and_end_with_the_pool(make_in):
    pool = WorkerPool(1)
    arguments = (False, 3, "", 0.1)
    first = make_in(pool, *arguments, target="faulty_env:fast")
    first.reset(seed=0)
    exits = first.submit("step", "exit")
    envs = [make_in(pool, *arguments, target="faulty_env:fast") for _ in range(6)]
    futures = futures_of(envs, "reset", seed=1)
    with pytest.raises(WorkerDiedError):
        first.receive(exits)
    assert len({env.receive(future)[0] for env, future in zip(envs, futures, strict=True)}) == 1
    rest = [make_in(pool, *arguments, target="faulty_env:fast") for _ in range(40)]
    waiting = futures_of(rest, "reset", seed=1)
    pool.close()
    assert all(future.wait(5) and future.exception() for future in waiting[-20:])


def test_calls_submitted_together_leave_in_one_write(make_in, pool):
    envs = [make_in(pool) for _ in range(10)]
    for env in envs:
        env.reset(seed=1)
    processes = {env._handle.worker.process for env in envs}
    with pool.together():
        futures = futures_of(envs, "reset", seed=2)
        assert sum(len(process._messages) for process in processes) == 10
    assert not any(process._messages for process in processes)
    assert len({env.receive(future)[0] for env, future in zip(envs, futures, strict=True)}) == 1
    for env in envs:
        env.close()


def noted(seen, number, over):
    seen.append((number, over))


def test_an_outcome_calls_back_once_whoever_comes_first():
    for _ in range(300):
        outcome, seen = Outcome(), []
        ending = threading.Thread(target=outcome.set_result, args=(5,))
        ending.start()
        for number in range(10):
            outcome.add_done_callback(partial(noted, seen, number))
        assert outcome.result() == 5 and outcome.exception() is None and outcome.done()
        ending.join()
        assert sorted(number for number, _ in seen) == list(range(10))
        assert all(over is outcome for _, over in seen)


def test_an_outcome_is_waited_for_and_set_once():
    outcome = Outcome()
    began = time.monotonic()
    assert not outcome.wait(0.05) and time.monotonic() - began >= 0.05
    outcome.set_exception(KeyError("gone"))
    with pytest.raises(KeyError, match="gone"):
        outcome.result()
    with pytest.raises(RuntimeError, match="over already"):
        outcome.set_result(1)
