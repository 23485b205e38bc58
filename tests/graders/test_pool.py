"""Worker processes: results, deadlines, deaths, replacement, threads, forks."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gem_core.envs.graders.pool import DeadlineError, GraderDiedError, GraderPool, WorkerError

TARGET = """
import os, sys, time

if hasattr(sys, "set_int_max_str_digits"):
    sys.set_int_max_str_digits(0)

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
    if kind == "compute":  # one call of C code, in which no Python handler of a signal runs
        return len(str(9 ** 9 ** 8))
    if kind == "nest":
        nested = []
        for _ in range(100_000):
            nested = [nested]
        return nested
    if kind == "print":
        print("noise " * 1000, flush=True)
    if kind == "eat":
        return len(bytearray(8 << 30))
    if kind == "object":
        return object()
    return {"pid": os.getpid(), "echo": job}
"""


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GraderPool]:
    (tmp_path / "pool_target.py").write_text(TARGET)
    monkeypatch.syspath_prepend(str(tmp_path))
    workers = GraderPool("pool_target:run", size=2)
    yield workers
    workers.close()


def pids_of(pool: GraderPool) -> set[int]:
    """Return the processes of the workers."""
    return {pool.call({"do": "sleep", "s": 0.01}, 30)["pid"] for _ in range(20)}


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or only left for its parent to read how it ended."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        return " Z " in stat.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_for_end(pid: int) -> bool:
    """Wait at most 30 s for the end of a process."""
    for _ in range(600):
        if has_ended(pid):
            return True
        time.sleep(0.05)
    return False


def test_a_job_goes_to_another_process_and_comes_back(pool: GraderPool) -> None:
    reply = pool.call({"text": "é\u0000" * 1000}, 30)
    assert reply["echo"] == {"text": "é\u0000" * 1000} and reply["pid"] != os.getpid()
    assert pool.call({"do": "print"}, 30)["echo"] == {"do": "print"}


def test_errors_are_reported_and_cost_no_worker(pool: GraderPool) -> None:
    before = pids_of(pool)
    with pytest.raises(WorkerError, match="KeyError: 'no such thing'"):
        pool.call({"do": "raise"}, 30)
    with pytest.raises(WorkerError, match="SystemExit: 3"):
        pool.call({"do": "quit"}, 30)
    with pytest.raises(WorkerError, match="not JSON"):
        pool.call({"do": "object"}, 30)
    with pytest.raises(WorkerError, match="MemoryError"):
        pool.call({"do": "eat"}, 30)
    with pytest.raises(WorkerError, match="not JSON"):
        pool.call({"do": "nest"}, 30)
    assert len(before | pids_of(pool)) <= 2


def test_a_megabyte_is_passed_on(pool: GraderPool) -> None:
    text = "x\n" * 500_000
    assert pool.call({"text": text}, 30)["echo"] == {"text": text}


@pytest.mark.parametrize("job", [{"do": "sleep", "s": 1000}, {"do": "compute"}])
def test_a_hung_worker_is_replaced_at_once(pool: GraderPool, job: dict[str, object]) -> None:
    before = pids_of(pool)
    begun = time.monotonic()
    for _ in range(3):
        with pytest.raises(DeadlineError):
            pool.call(job, 0.2)
        assert pool.call({}, 30)["pid"]
    assert time.monotonic() - begun < 30
    assert len(before - pids_of(pool)) >= 1


def test_a_hung_worker_does_not_delay_the_other(pool: GraderPool) -> None:
    pids_of(pool)
    with ThreadPoolExecutor(1) as executor:
        hung = executor.submit(pool.call, {"do": "sleep", "s": 1000}, 4)
        for _ in range(5):
            pool.call({}, 30)
        assert not hung.done()
        with pytest.raises(DeadlineError):
            hung.result()


def test_a_dead_worker_is_replaced(pool: GraderPool) -> None:
    with pytest.raises(GraderDiedError):
        pool.call({"do": "die"}, 30)
    assert pool.call({}, 30)["pid"]


def test_workers_that_are_killed_while_idle_are_replaced(pool: GraderPool) -> None:
    for pid in pids_of(pool):
        os.kill(pid, 9)
    time.sleep(1)  # a job that comes before the pool has noticed fails
    assert pool.call({}, 30)["pid"] and pool.call({}, 30)["pid"]


def test_a_server_that_is_killed_is_replaced(pool: GraderPool) -> None:
    pids = pids_of(pool)
    assert pool._server is not None
    server = pool._server
    os.kill(server._process.pid, 9)
    assert all(map(wait_for_end, pids))
    for _ in range(600):
        if server.has_ended:
            break
        time.sleep(0.05)
    assert pool.call({}, 30)["pid"] not in pids


def test_many_threads_share_the_workers(pool: GraderPool) -> None:
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


def test_closing_ends_the_processes(pool: GraderPool) -> None:
    pid = pool.call({}, 30)["pid"]
    pool.close()
    assert wait_for_end(pid)
    assert pool.call({}, 30)["pid"] != pid


def test_a_forked_child_gets_workers_of_its_own(pool: GraderPool) -> None:
    pids = pids_of(pool)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if pool.call({}, 60)["pid"] not in pids else 2
            pool.close()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert pool.call({}, 30)["pid"] in pids


def test_a_target_that_cannot_be_imported_is_named() -> None:
    broken = GraderPool("gem_core.envs.graders.nowhere:run", size=1)
    with pytest.raises(WorkerError, match=r"could not start: ModuleNotFoundError.*nowhere"):
        broken.call({}, 5)
    broken.close()


def test_a_process_that_may_have_no_children_grades(pool: GraderPool) -> None:
    """As in a worker of a `multiprocessing.Pool` or of torch's DataLoader, which are daemons."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=lambda: theirs.send(pool.call({"a": 1}, 60)), daemon=True)
    child.start()
    assert ours.poll(120) and ours.recv()["echo"] == {"a": 1}
    child.join()


def test_workers_of_a_script_do_not_run_the_script(tmp_path: Path) -> None:
    script = tmp_path / "script.py"  # without `if __name__ == "__main__"`
    script.write_text(
        "from gem_core.envs.graders.pool import get_pool\n"
        "pool = get_pool('gem_core.envs.graders.qa:normalise_answer')\n"
        "print(pool.call('The  End.', 60))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout == "end\n" and not done.stderr


@pytest.mark.parametrize("job", ["'The  End.'", "None"])
def test_workers_end_with_their_parent(job: str, tmp_path: Path) -> None:
    (tmp_path / "reporting.py").write_text(
        "import os, time\n"
        "def run(job):\n"
        f"    open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        "    if job is None: time.sleep(1000)\n"
    )
    program = (
        f"import os, sys, threading, time; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from gem_core.envs.graders.pool import get_pool\n"
        "pool = get_pool('reporting:run')\n"
        f"threading.Thread(target=pool.call, args=({job}, 600), daemon=True).start()\n"
        f"while not os.path.exists({str(tmp_path / 'pid')!r}): time.sleep(0.05)\n"
        "time.sleep(0.5)\n"
        "os._exit(0)  # no atexit: as if it had been killed\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    assert wait_for_end(int((tmp_path / "pid").read_text()))
