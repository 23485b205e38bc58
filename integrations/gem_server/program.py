"""Run a server until it is told to end."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import threading
from contextlib import closing

import uvicorn

from gem_core.errors import GemError
from gem_core.execution.server_client.addresses import TOKEN_VARIABLE, is_loopback
from gem_core.execution.server_client.file_limit import raise_file_limit
from gem_server.app import EnvServer
from gem_server.connections import connection_classes
from gem_server.limits import ServerLimits

SQLITE_MB = 256
"""Memory of all SQLite databases in the server's process."""
PING_S = 20.0
"""Seconds between two pings, which keep a connection open that says nothing for long."""
END_S = 10.0
"""Seconds in which environments may clean up after the last session is closed."""


def make_program(
    limits: ServerLimits, *, host: str = "127.0.0.1", port: int = 0, token: str | None = None
) -> uvicorn.Server:
    """Return a server that is ready to run.

    Args:
        limits: what clients may use.
        host: the address it listens on.
        port: 0 for a free one.
        token: what clients have to send.

    Raises:
        GemError: another address than the loopback without a token.
    """
    if not is_loopback(host) and not token:
        raise GemError(
            f"Serving on {host} needs a token: set {TOKEN_VARIABLE}, here and where clients "
            "run. It travels unencrypted: put a proxy with TLS in front."
        )
    _bound_sqlite()
    raise_file_limit(limits.connections)
    http, ws = connection_classes(limits)
    config = uvicorn.Config(
        EnvServer(limits, token).app(),
        host=host,
        port=port,
        log_level="error",  # a client that sends nonsense writes no log
        http=http,
        ws=ws,
        ws_max_size=limits.message_bytes,
        ws_ping_interval=PING_S,
        # A trainer that holds its interpreter for a step answers no ping, and is not gone; a client
        # that is gone is known by its connection, or by the limit for idle sessions.
        ws_ping_timeout=None,
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=5,
        backlog=2048,
    )
    return uvicorn.Server(config)


def _bound_sqlite() -> None:
    """Bound the memory of all databases of this process, whatever environments do with them."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"PRAGMA hard_heap_limit = {SQLITE_MB << 20}")


def _end(number: int, frame: object) -> None:
    """End as a program does, not as one that is killed: what is registered for the end is done."""
    late = threading.Timer(END_S, os._exit, (128 + number,))
    late.daemon = True
    late.start()
    raise SystemExit(0)


def run(limits: ServerLimits, *, host: str, port: int, token: str | None) -> None:
    """Serve until Ctrl-C or SIGTERM; then what environments left is removed, and it ends."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)  # uvicorn raises the signal again when it has served
    program = make_program(limits, host=host, port=port, token=token)
    print(f"serving on http://{host}:{port}", file=sys.stderr, flush=True)
    program.run()
