"""10,000 hostile requests to a real server: no internal error, no trace, no harm to others.

``GEM_FUZZ_REQUESTS`` and ``GEM_FUZZ_SEED`` ask for more, or for others.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import gem_core
from gem_core.execution.server_client.client import RemoteEnv

from .fuzz import Fuzz
from .test_connections import _until_it_serves, alive, children

REQUESTS = int(os.environ.get("GEM_FUZZ_REQUESTS", "10000"))
SEED = int(os.environ.get("GEM_FUZZ_SEED", "0"))
GROWTH_MB = 100
NEIGHBOURS = ("game:Sudoku-v0-easy", "mcp:update-v0", "terminal:files-v0", "rg:chain_sum")
EXPECTED = {
    "state": ("load", "VALIDATION_ERROR"),
    "step": ("observation", "VALIDATION_ERROR"),
    "reset": ("observation", "VALIDATION_ERROR"),
    "message": ("state", "save", "INVALID_JSON", "UNKNOWN_TYPE", "VALIDATION_ERROR"),
    "parameters": ("200", "400", "404"),
    "path": ("200", "404", "405"),
    "body": ("400", "404", "413"),
    "header": ("200", "400", "401"),
    "frame": ("closed",),
}
"""What must be among the answers of each kind, or its requests do not arrive where they should."""
ALLOWED = {"EXECUTION_ERROR", "0", "100", "closed", "closed 1008", "closed 1009", "501", "503"}
"""What may be among the answers of every kind, as whatever begins with a 4."""
POSSIBLE = {"message": ("observation",)}
"""What rarely is: a message of any form may be a right one, such as a reset without a seed."""


class Server:
    """``gem-core serve`` in a folder of its own, and what it printed."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.here = folder / "a" / "b" / "c"
        self.log = folder / "log"
        temporary = folder / "tmp"
        for made in (self.here, temporary, folder / "home"):
            made.mkdir(parents=True)
        environment = {**os.environ, "TMPDIR": str(temporary), "HOME": str(folder / "home")}
        environment |= {"HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
        environment.pop("GEM_CORE_SERVER_TOKEN", None)
        command = [sys.executable, "-m", "gem_core.cli", "serve", "--port", str(self.port)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--parameters"], cwd=self.here, env=environment, stderr=log
            )
        _until_it_serves(self.port)

    @property
    def memory_mb(self) -> float:
        """Its resident memory."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.process.kill()
    made.process.wait()


class Neighbour:
    """An episode on the server beside the same one here."""

    def __init__(self, port: int, name: str) -> None:
        self.rng = Random(name)
        self.here = gem_core.make(name)
        self.there = RemoteEnv(name, url=f"http://127.0.0.1:{port}")
        self.over = False
        assert _plain(self.there.reset(seed=11)) == _plain(self.here.reset(seed=11))

    def play(self, steps: int) -> None:
        """Play on, with equal results."""
        for _ in range(steps):
            if not self.over:
                action = self.here.random_action(self.rng)
                expected = self.here.step(action)
                assert _plain(self.there.step(action)) == _plain(expected)
                self.over = expected[2] or expected[3]


def _plain(result: Any) -> Any:
    return json.loads(json.dumps(result, default=repr))


def files_below(folder: Path) -> dict[str, float]:
    """Return every file and folder but those of the server's own temporary folder and log."""
    own = (folder / "tmp", folder / "log")
    found = [path for path in folder.rglob("*") if not any(map(path.is_relative_to, own))]
    return {str(path): path.lstat().st_mtime for path in found}


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="memory and processes are read in /proc")
def test_ten_thousand_hostile_requests(server: Server, tmp_path: Path) -> None:
    neighbours = [Neighbour(server.port, name) for name in NEIGHBOURS]
    for neighbour in neighbours:
        neighbour.play(1)
    fuzz = Fuzz(server.port, SEED)
    fuzz.send(REQUESTS // 10)
    files = files_below(tmp_path)
    memory = server.memory_mb
    below = children(server.process.pid)
    fuzz.send(REQUESTS - REQUESTS // 10)
    grown = server.memory_mb - memory
    for neighbour in neighbours:
        neighbour.play(200)
        assert neighbour.over, neighbour.here
        neighbour.there.close()
    fuzz.close()
    check_answers(fuzz.counts)
    assert files_below(tmp_path) == files
    assert grown < GROWTH_MB, f"{grown:.0f} MB more than after a tenth of the requests"
    assert len(children(server.process.pid)) <= len(below) + 2
    below |= children(server.process.pid)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(60) == 0
    until = time.monotonic() + 60
    while any(map(alive, below)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(alive, below))
    printed = server.log.read_text()
    assert "Traceback" not in printed and "Exception" not in printed, printed[-5000:]
    assert list((tmp_path / "tmp").iterdir()) == []
    print(f"{grown:+.0f} MB; {dict(sorted(fuzz.counts.items()))}")


def check_answers(counts: Counter[tuple[str, str]]) -> None:
    """Check that no answer is an internal error, and that every kind got where it should."""
    shown = dict(sorted(counts.items()))
    for kind, expected in EXPECTED.items():
        answers = {answer: n for (of, answer), n in counts.items() if of == kind}
        total = sum(answers.values())
        for answer in expected:
            assert answers.get(answer, 0) >= total / 200, f"{kind}, {answer}: {shown}"
        known = {"4", *expected, *POSSIBLE.get(kind, ()), *ALLOWED}
        for answer in answers:
            assert answer in known or answer[:1] == "4", f"{kind}, {answer}: {shown}"
        assert answers.get("0", 0) + answers.get("EXECUTION_ERROR", 0) < 0.7 * total, (
            f"{kind}: {shown}"
        )
