"""Connections that never finish what they begin, too many of them, and the end of a server."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gem_server.app import EnvServer
from gem_server.limits import RefusedError, ServerLimits

from .raw import LATEST_S, connect, frame, rest, upgrade

SUDOKU = "/env/game:Sudoku-v0-easy/ws"
HEAD = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n"
UNFINISHED = {
    "nothing": b"",
    "half a head": HEAD,
    "half a body": b"POST /sessions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{",
    "an endless head": HEAD + b"a: b\r\n" * 30_000,
    "a long line": HEAD + b"a: " + b"x" * 200_000,
}


@pytest.mark.parametrize("name", UNFINISHED)
def test_a_request_that_does_not_end_is_ended(start: Callable[..., Any], name: str) -> None:
    server = start(request_s=0.3)
    answer = rest(connect(server.port, UNFINISHED[name]))
    assert b" 500 " not in answer
    assert server.http("/health")[0] == 200


def test_a_second_request_that_does_not_end_is_ended(start: Callable[..., Any]) -> None:
    server = start(request_s=0.3)
    connection = connect(server.port, HEAD + b"\r\n")
    assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
    connection.sendall(b"GET /he")
    rest(connection)


MESSAGES = {
    "half a message": frame(1, b"{", final=False),
    "frames without an end": frame(1, b"{", final=False) + frame(0, b"", final=False) * 3000,
    "a message that is too big": frame(1, b"{", final=False) + frame(0, b" " * 99_999) * 20,
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_that_does_not_end_is_ended(start: Callable[..., Any], name: str) -> None:
    server = start(request_s=0.3, message_bytes=1 << 20)
    connection = upgrade(server.port, SUDOKU)
    with suppress(ConnectionError):
        connection.sendall(MESSAGES[name])
    rest(connection)
    server.wait_for("sessions", 0)


def test_a_client_that_answers_no_ping_keeps_its_session(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gem_server.program.PING_S", 0.02)
    connection = upgrade(start().port, SUDOKU)
    ping = frame(9, b"0123", masked=False)[:2]
    _read_until(connection, lambda received: received.count(ping) >= 5)
    connection.sendall(frame(1, b'{"type": "state"}'))
    _read_until(connection, lambda received: b"step_count" in received)
    connection.close()


def _read_until(connection: socket.socket, holds: Callable[[bytes], bool]) -> None:
    received = b""
    while not holds(received):
        part = connection.recv(1 << 16)
        assert part, f"the server closed the connection after {received!r}"
        received += part


def test_a_client_that_reads_nothing_does_not_fill_memory(start: Callable[..., Any]) -> None:
    server = start()
    connection = upgrade(server.port, SUDOKU)
    connection.settimeout(LATEST_S)
    pings = frame(9, b"x" * 125) * 1000
    with connection, pytest.raises(ConnectionError):
        for _ in range(5000):  # 650 MB
            connection.sendall(pings)
    server.wait_for("sessions", 0)


def test_a_session_outlives_the_deadline_of_a_request(start: Callable[..., Any]) -> None:
    server = start(request_s=0.2)
    connection = upgrade(server.port, SUDOKU)
    server.wait_for("sessions", 1)
    rest(connect(server.port, HEAD))  # the server ends this one after the deadline
    rest(connect(server.port, HEAD))
    connection.sendall(frame(1, b'{"type": "state"}'))
    assert b"step_count" in connection.recv(1 << 16)
    connection.close()


def test_there_are_no_more_connections_than_allowed(start: Callable[..., Any]) -> None:
    server = start(connections=20)
    held = [connect(server.port, b"GET") for _ in range(60)]
    waiting = {connection: connection for connection in held}
    while len(waiting) > 20:
        ready, _, _ = select.select(waiting, [], [], LATEST_S)
        assert ready, f"{len(waiting)} connections are open"
        for connection in ready:
            del waiting[connection]
            with suppress(ConnectionError):
                assert b" 503 " in connection.recv(1 << 16)
    # A client has read that it is one too many before the server has closed its connection.
    wait_until(lambda: len(server.program.server_state.connections) <= 20)
    for connection in held:
        connection.close()
    wait_until(lambda: not server.program.server_state.connections)
    assert server.http("/health")[0] == 200


def wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + LATEST_S
    while not holds() and time.monotonic() < until:
        time.sleep(0.01)
    assert holds()


def test_sessions_are_bounded_by_memory_too() -> None:
    with pytest.raises(RefusedError, match="--memory-mb") as refused:
        EnvServer(ServerLimits(memory_mb=1.0)).sessions._check("game:Sudoku-v0-easy", {})
    assert (refused.value.code, refused.value.status) == ("CAPACITY_REACHED", 503)


def folders_of(processes: set[int]) -> set[Path]:
    """Return the folders in memory in which processes have a file open."""
    found = set()
    for process in processes:
        with suppress(OSError):
            for link in Path(f"/proc/{process}/fd").iterdir():
                with suppress(OSError):
                    found.add(Path(os.readlink(link)).parent)
    return {folder for folder in found if folder.name.startswith("gem-")}


def children(process: int) -> set[int]:
    """Return the processes below one."""
    with suppress(OSError):
        tasks = Path(f"/proc/{process}/task").iterdir()
        direct = {int(p) for task in tasks for p in (task / "children").read_text().split()}
        return direct.union(*(children(child) for child in direct))
    return set()


def alive(process: int) -> bool:
    """Return whether a process runs; one that nobody waited for has ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


PLAYED = {
    "mcp:update-v0": '<tool_call>{"name": "list_tables", "arguments": {}}</tool_call>',
    "terminal:files-v0": "<answer>ls</answer>",
    "rg:chain_sum": "\\boxed{1}",
    "game:Sudoku-v0-easy": "\\boxed{1 1 1}",
}


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked up in /proc")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_told_to_end_leaves_nothing(how: int, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "gem_core.cli", "serve", "--port", str(port)]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    environment.pop("GEM_CORE_SERVER_TOKEN", None)
    server = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        _until_it_serves(port)
        for name, action in PLAYED.items():
            session = _post(port, "/sessions", {"environment": name})["session"]
            _post(port, f"/sessions/{session}/reset", {"seed": 1})
            _post(port, f"/sessions/{session}/step", {"text": action})
        half = [connect(port, b"GET /") for _ in range(5)]
        below = children(server.pid)
        folders = folders_of({server.pid, *below})
        server.send_signal(how)
        assert server.wait(LATEST_S) == 0
        for connection in half:
            connection.close()
    finally:
        server.kill()
        _, printed = server.communicate()
    assert "Traceback" not in printed, printed
    until = time.monotonic() + LATEST_S
    while any(map(alive, below)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(alive, below))
    assert [folder for folder in folders if folder.exists()] == []
    assert list(tmp_path.iterdir()) == []


def _until_it_serves(port: int) -> None:
    until = time.monotonic() + LATEST_S
    while time.monotonic() < until:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health"):
            return
        time.sleep(0.05)


def _post(port: int, path: str, data: dict[str, Any]) -> Any:
    url = f"http://127.0.0.1:{port}{path}"
    request = urllib.request.Request(url, json.dumps(data).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=LATEST_S) as answer:
        return json.load(answer)


def test_sessions_of_databases_need_no_process_and_little_memory() -> None:
    program = """
import json, os, sys
import gem_core
from gem_core.envs.database.env import write_call
from gem_server.sessions import memory_mb
action = write_call("list_tables")
def play():
    env = gem_core.make("mcp:update-v0")
    env.reset(seed=1)
    env.step(action)
    return env
first = play()
before = memory_mb()
envs = [play() for _ in range(100)]
tasks = f"/proc/self/task/{os.getpid()}/children"
below = open(tasks).read().split() if os.path.exists(tasks) else []
print(json.dumps([(memory_mb() - before) / 100, len(below)]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    each, processes = json.loads(done.stdout)
    assert processes == 0
    assert each < 2, f"{each:.2f} MB for each session"
