"""A real server on a free port of the loopback, in a thread of this process."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gem_server.limits import ServerLimits
from gem_server.program import make_program

START_S = 60.0


class Running:
    """A server that runs, and requests by hand."""

    def __init__(self, program: Any) -> None:
        self.program = program
        self.thread = threading.Thread(target=program.run, daemon=True)
        self.thread.start()
        until = time.monotonic() + START_S
        while not program.started and time.monotonic() < until:
            time.sleep(0.01)
        assert program.started
        self.port = program.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def http(
        self, path: str, body: bytes | None = None, method: str | None = None, **headers: str
    ) -> tuple[int, str]:
        """Return status and text of an answer."""
        request = urllib.request.Request(self.url + path, body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def metric(self, name: str, **headers: str) -> float:
        """Return a value of ``/metrics``: ``sessions_closed_total{kind="idle"}``."""
        lines = self.http("/metrics", **headers)[1].splitlines()
        values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return float(values.get(f"gem_core_{name}", "0"))

    def wait_for(self, name: str, value: float, seconds: float = START_S, **headers: str) -> None:
        """Wait until a metric has a value."""
        until = time.monotonic() + seconds
        while self.metric(name, **headers) != value and time.monotonic() < until:
            time.sleep(0.02)
        assert self.metric(name, **headers) == value

    def stop(self) -> None:
        self.program.should_exit = True
        self.thread.join(START_S)
        assert not self.thread.is_alive()


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Running]]:
    """Start servers that end with the test: ``start(token=None, **limits)``."""
    monkeypatch.delenv("GEM_CORE_SERVER_TOKEN", raising=False)
    running: list[Running] = []

    def start_one(token: str | None = None, **limits: Any) -> Running:
        running.append(Running(make_program(ServerLimits(**limits), token=token)))
        return running[-1]

    yield start_one
    for server in running:
        server.stop()
