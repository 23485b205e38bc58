"""Servers that end with their tests, and both ways of playing many machines."""

from __future__ import annotations

import pytest
from served import TOKEN, Served

from gem_core.execution.server_client import opening
from gem_core.runs.environments import pools as run_pools


@pytest.fixture
def serve(monkeypatch):
    """``serve(token=None, turns=None, **limits)``: servers that end with the test."""
    monkeypatch.delenv(TOKEN, raising=False)
    running = []

    def start(*arguments, **named):
        running.append(Served(*arguments, **named))
        return running[-1]

    yield start
    run_pools.close_run_pools(None)
    for server in running:
        if server.process.poll() is None:
            server.kill()


@pytest.fixture(scope="module")
def shared():
    """A server for the tests that leave it as it is."""
    server = Served()
    yield server
    server.kill()


@pytest.fixture
def server(shared, monkeypatch):
    monkeypatch.delenv(TOKEN, raising=False)
    yield shared
    run_pools.close_run_pools(None)
    shared.wait_for("sessions", 0)


@pytest.fixture
def impatient(monkeypatch):
    """Servers that cannot be reached are given up at once."""
    patience = dict.fromkeys(opening._PATIENCE, 0.0)
    monkeypatch.setattr(opening, "_PATIENCE", patience)
