"""Worker processes: results, deadlines, deaths, replacement, threads, forks."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gem_core.envs.graders.pool import DeadlineError, WorkerDiedError, WorkerError, WorkerPool

TARGET = """
import os, time

def run(job):
    kind = job.get("do")
    if kind == "sleep":
        time.sleep(job["s"])
    if kind == "raise":
        raise KeyError("no such thing")
    if kind == "quit":
        raise SystemExit(3)
    if kind == "die":
        os._exit(3)
    if kind == "print":
        print("noise " * 1000, flush=True)
    if kind == "eat":
        return len(bytearray(8 << 30))
    if kind == "object":
        return object()
    return {"pid": os.getpid(), "echo": job}
"""


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerPool]:
    (tmp_path / "pool_target.py").write_text(TARGET)
    monkeypatch.syspath_prepend(str(tmp_path))
    made = WorkerPool("pool_target:run", size=2)
    yield made
    made.close()


def test_a_job_goes_to_another_process_and_comes_back(pool: WorkerPool) -> None:
    reply = pool.call({"text": "é\u0000" * 1000}, 30)
    assert reply["echo"] == {"text": "é\u0000" * 1000} and reply["pid"] != os.getpid()
    assert pool.call({"do": "print"}, 30)["echo"] == {"do": "print"}


def test_errors_are_reported_and_cost_no_worker(pool: WorkerPool) -> None:
    pid = pool.call({}, 30)["pid"]
    with pytest.raises(WorkerError, match="KeyError: 'no such thing'"):
        pool.call({"do": "raise"}, 30)
    with pytest.raises(WorkerError, match="SystemExit: 3"):
        pool.call({"do": "quit"}, 30)
    with pytest.raises(WorkerError, match="not JSON"):
        pool.call({"do": "object"}, 30)
    with pytest.raises(WorkerError, match="MemoryError"):
        pool.call({"do": "eat"}, 30)
    assert pool.call({}, 30)["pid"] == pid and pool.replaced == 0


def test_a_hung_worker_is_replaced_at_once(pool: WorkerPool) -> None:
    pids = {pool.call({}, 30)["pid"]}
    for _ in range(3):
        with pytest.raises(DeadlineError):
            pool.call({"do": "sleep", "s": 1000}, 0.2)
        pids.add(pool.call({}, 30)["pid"])
    assert len(pids) == 4 and pool.replaced == 3


def test_a_dead_worker_is_replaced(pool: WorkerPool) -> None:
    with pytest.raises(WorkerDiedError):
        pool.call({"do": "die"}, 30)
    assert pool.call({}, 30)["pid"]


def test_many_threads_share_the_workers(pool: WorkerPool) -> None:
    replies: list[tuple[int, int, int]] = []

    def work(number: int) -> None:
        for i in range(20):
            reply = pool.call({"n": number * 100 + i}, 60)
            replies.append((number * 100 + i, reply["echo"]["n"], reply["pid"]))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(replies) == 160 and all(sent == echoed for sent, echoed, _ in replies)
    assert len({pid for *_, pid in replies}) <= 2


def test_closing_ends_the_processes(pool: WorkerPool) -> None:
    pid = pool.call({}, 30)["pid"]
    pool.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert pool.call({}, 30)["pid"] != pid


def test_a_forked_child_gets_workers_of_its_own(pool: WorkerPool) -> None:
    pid = pool.call({}, 30)["pid"]
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if pool.call({}, 60)["pid"] != pid else 2
            pool.close()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert pool.call({}, 30)["pid"] == pid


def test_a_target_that_cannot_be_imported_is_named() -> None:
    broken = WorkerPool("gem_core.envs.graders.nowhere:run", size=1)
    with pytest.raises(WorkerError, match=r"could not start: ModuleNotFoundError.*nowhere"):
        broken.call({}, 5)
    broken.close()


def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    import subprocess

    program = (
        "import os\n"
        "from gem_core.envs.graders.pool import shared_pool\n"
        "pool = shared_pool('gem_core.envs.graders.qa:normalise_answer')\n"
        "assert pool.call('The  End.', 60) == 'end'\n"
        "print(next(iter(pool._all))._process.pid, flush=True)\n"
        "os._exit(0)  # no atexit: as if it had been killed\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    pid = int(done.stdout)
    for _ in range(600):
        if not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text():
            return
        time.sleep(0.05)
    os.kill(pid, 9)
    raise AssertionError("the worker outlived its parent")
