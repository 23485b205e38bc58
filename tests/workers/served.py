"""A server process with the environment with faults, and what stands between it and its clients.

As a program it is that process: it prints its port. The arguments are limits as JSON and the number
of turns that its environment has.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
TOKEN = "GEM_CORE_SERVER_TOKEN"


class Served:
    """A server in a process of its own; ``limits`` are those of `ServerLimits`."""

    def __init__(self, token=None, turns=None, folder=None, **limits):
        limits.setdefault("parameters", True)
        self.token = token
        self.process = subprocess.Popen(
            [sys.executable, str(FOLDER / "served.py"), json.dumps(limits), json.dumps(turns)],
            stdin=subprocess.PIPE,  # it ends with the tests, however they end
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, TOKEN: token or ""},
            cwd=folder,
        )
        self.port = int(self.process.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}"
        until = time.monotonic() + 20
        while True:
            with suppress(OSError):
                self.metric("sessions")
                return
            assert time.monotonic() < until
            time.sleep(0.02)

    def metric(self, name):
        """A value of ``/metrics``."""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        request = urllib.request.Request(f"{self.url}/metrics", headers=headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            lines = [line.rsplit(" ", 1) for line in answer.read().decode().splitlines()]
        return float({line[0]: line[-1] for line in lines}.get(f"gem_core_{name}", "0"))

    def wait_for(self, name, value, seconds=20.0):
        """Wait until a metric has a value."""
        until = time.monotonic() + seconds
        while self.metric(name) != value and time.monotonic() < until:
            time.sleep(0.02)
        assert self.metric(name) == value

    def kill(self):
        """End it as a machine that loses its power does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()
        self.process.stdin.close()


class Relay:
    """Passes bytes on to a server until `cut`, which drops the connections; new ones are taken."""

    def __init__(self, port):
        self.port = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open = []
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def cut(self):
        """Drop all connections, without a word of the server."""
        while self._open:
            with suppress(OSError):
                self._open.pop().shutdown(socket.SHUT_RDWR)

    def close(self):
        """Take no more connections, and drop those that are there."""
        self._listening.close()
        self.cut()

    def _serve(self):
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self.port))
                except OSError:
                    near.close()
                    continue
                self._open += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=_pass_on, args=pair, daemon=True).start()


def _pass_on(source, target):
    with suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


class Unavailable:
    """A proxy whose server is down: it answers every request with 503."""

    def __init__(self):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):  # the name is the library's
                self.send_error(503)

            def log_message(self, *arguments):
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        """End it."""
        self._server.shutdown()
        self._server.server_close()


def main():
    sys.path.insert(0, str(FOLDER))
    import faulty_env

    from gem_core.env.registration import register
    from gem_core.env.registration.parameters import Flag, Whole
    from gem_server.limits import ServerLimits
    from gem_server.program import make_program

    limits, turns = map(json.loads, sys.argv[1:])
    declared = {"turns": Whole(1, 100), "slow": Flag()}
    more = {"turns": turns} if turns else {}
    register(faulty_env.ID, "faulty_env:Faulty", client_parameters=declared, **more)
    register(faulty_env.FAST, "faulty_env:Fast")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = make_program(ServerLimits(**limits), port=port, token=os.environ.get(TOKEN) or None)
    print(port, flush=True)
    threading.Thread(target=lambda: os._exit(len(sys.stdin.read())), daemon=True).start()
    program.run()
    os._exit(0)  # calls that hang do not keep it


if __name__ == "__main__":
    main()
