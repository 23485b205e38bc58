"""A stand-in for the part of launchpad that Oat uses: a program of processes on this machine.

Every node is a spawned process; calls between them go over local sockets. `launch` returns when a
node calls `stop`, or raises when one fails; either way it ends every process that was started.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing import get_context
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

from gem_adapters.cpu_threads import VARIABLE
from gem_core.errors import GemError

STOP = "GEM_OAT_STOP_FILE"
_preparation: list[Callable[[], None]] = []


def prepare_nodes_by(function: Callable[[], None]) -> None:
    """Have every node call a function of a module before it imports Oat."""
    _preparation[:] = [function]


"""Environment variable: the file whose existence ends the program."""
_KEY = b"gem-oat"
_pool = ThreadPoolExecutor(8)


class PythonProcess:
    """Resources of a node: its environment variables."""

    def __init__(self, env: dict[str, str] | None = None) -> None:
        self.env = env or {}


class Handle:
    """A remote object: ``handle.method(...)``, ``handle.futures.method(...).result()``."""

    def __init__(self, port: int) -> None:
        self.port = port

    def __reduce__(self) -> tuple[Any, ...]:
        return Handle, (self.port,)

    @property
    def futures(self) -> _Futures:
        """The same methods, returning futures."""
        return _Futures(self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self.call(name, args, kwargs)

    def call(self, name: str, args: Any, kwargs: Any) -> Any:
        """Call a method of the remote object; waits for its process to come up."""
        connection = self._connect()
        try:
            connection.send_bytes(pickle.dumps((name, args, kwargs)))
            succeeded, value = pickle.loads(connection.recv_bytes())
        finally:
            connection.close()
        if not succeeded:
            raise GemError(f"Remote {name}() failed:\n{value}")
        return value

    def _connect(self) -> Connection:
        for _ in range(6000):  # `launch` ends everything when that process fails
            try:
                return Client(("127.0.0.1", self.port), authkey=_KEY)
            except ConnectionRefusedError:
                time.sleep(0.1)
        raise GemError(
            f"No process listens on port {self.port}: it did not come up in 10 minutes. See the "
            "output above."
        )


class _Futures:
    def __init__(self, handle: Handle) -> None:
        self.handle = handle

    def __getattr__(self, name: str) -> Any:
        def submit(*args: Any, **kwargs: Any) -> Future[Any]:
            return _pool.submit(self.handle.call, name, args, kwargs)

        return submit


class PyClassNode:
    """A node that is built and run."""

    def __init__(self, cls: type, *args: Any, **kwargs: Any) -> None:
        self.cls = cls
        self.args = args
        self.kwargs = kwargs
        self.port = 0

    def create_handle(self) -> Handle | None:
        """Nobody calls this node."""
        return None


class CourierNode(PyClassNode):
    """A node whose methods the others call."""

    def create_handle(self) -> Handle:
        """What the others call it by."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        return Handle(self.port)


class Program:
    """Nodes by label."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: dict[str, PyClassNode] = {}

    def add_node(self, node: PyClassNode, label: str) -> Handle | None:
        """Add a node; returns its handle."""
        self.nodes[label] = node
        return node.create_handle()


class local_multi_processing:
    """Oat imports ``PythonProcess`` from a module of this name."""

    PythonProcess = PythonProcess


def stop() -> None:
    """End the program; in a run without processes there is nothing to end."""
    if STOP in os.environ:
        Path(os.environ[STOP]).touch()


def launch(program: Program, *, local_resources: dict[str, PythonProcess], **_: Any) -> None:
    """Run every node in a process of its own until one calls `stop`.

    Raises:
        GemError: a node failed.
    """
    context = get_context("spawn")
    processes: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        stop_file = Path(folder) / "stop"
        prepare = pickle.dumps(_preparation)
        try:
            for label, node in program.nodes.items():
                resources = local_resources.get(label)
                environ = {**(resources.env if resources else {}), STOP: str(stop_file)}
                payload = pickle.dumps((node.cls, node.args, node.kwargs))
                arguments = (environ, prepare, payload, node.port)
                process = context.Process(target=_main, args=arguments, name=label)
                process.start()
                processes.append(process)
            _wait(processes, stop_file)
        finally:
            for process in processes:
                _end(process)


def _wait(processes: list[Any], stop_file: Path) -> None:
    """Return when ``stop_file`` is there; raise GemError when a process failed."""
    while not stop_file.exists():
        for process in processes:
            if process.exitcode:
                raise GemError(
                    f"{process.name} ended with code {process.exitcode}; its output above says why."
                )
        time.sleep(0.1)
    time.sleep(1.0)  # let the learners that did not call stop come to their end


def _end(process: Any) -> None:
    """End a node and what it started (the plasma store): it leads a process group of its own."""
    if process.pid is not None:
        try:
            os.killpg(process.pid, signal.SIGTERM)
        except ProcessLookupError:
            process.terminate()  # not yet a leader, or gone
    process.join(10)
    if process.is_alive():
        process.kill()
        process.join()


def _end_with(parent: int) -> None:
    """End this node and what it started once the launching process is gone, however it ended."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _main(environ: dict[str, str], prepare: bytes, payload: bytes, port: int) -> None:
    os.setpgrp()
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    os.environ.update(environ)
    import torch

    torch.set_num_threads(int(os.environ.get(VARIABLE, "1")))
    for function in pickle.loads(prepare):
        function()
    cls, args, kwargs = pickle.loads(payload)  # imports Oat: after it was prepared for
    node = cls(*args, **kwargs)
    if not port:  # nobody calls it
        node.run()
        return
    server = threading.Thread(target=_serve, args=(node, port), daemon=True)
    server.start()
    if hasattr(node, "run"):
        node.run()
    server.join()


def _serve(node: Any, port: int) -> None:
    listener = Listener(("127.0.0.1", port), authkey=_KEY, backlog=64)
    while True:
        connection = listener.accept()
        threading.Thread(target=_answer, args=(node, connection), daemon=True).start()


def _answer(node: Any, connection: Connection) -> None:
    name, args, kwargs = pickle.loads(connection.recv_bytes())
    try:
        answer = pickle.dumps((True, getattr(node, name)(*args, **kwargs)))
    except BaseException:
        answer = pickle.dumps((False, traceback.format_exc()))
    connection.send_bytes(answer)
    connection.close()
