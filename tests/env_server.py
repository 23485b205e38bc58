"""``gem-core serve`` in a process of its own: runs whose environments are there are tested."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress

TOKEN = "GEM_CORE_SERVER_TOKEN"


class EnvServer:
    """A running server with the token of ``GEM_CORE_SERVER_TOKEN``.

    Attributes:
        process: the server's.
        address: ``http://127.0.0.1:PORT``.
    """

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "gem_core.cli", "serve", "--port", str(port)]
        self.process = subprocess.Popen(command)
        until = time.monotonic() + 60
        while time.monotonic() < until and self.process.poll() is None:
            with suppress(OSError), urllib.request.urlopen(f"{self.address}/health"):
                return
            time.sleep(0.05)
        code = self.process.poll()
        self.end()
        raise RuntimeError(f"the server did not start: exit code {code}")

    @property
    def keys(self) -> tuple[str, str]:
        """The recipe's keys for environments behind it."""
        return "workers.backend=server", f"workers.address={self.address}"

    def metric(self, name: str) -> float:
        """Return a figure of ``/metrics``."""
        headers = {"Authorization": f"Bearer {os.environ[TOKEN]}"}
        request = urllib.request.Request(f"{self.address}/metrics", None, headers)
        with urllib.request.urlopen(request) as answer:
            lines = [line.rsplit(" ", 1) for line in answer.read().decode().splitlines()]
        return float(dict(line for line in lines if len(line) == 2)[f"gem_core_{name}"])

    def forgotten(self) -> bool:
        """Return whether no session is left, within some seconds."""
        until = time.monotonic() + 20
        while self.metric("sessions") and time.monotonic() < until:
            time.sleep(0.05)
        return not self.metric("sessions")

    def end(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()
