"""What hostile clients ask a real server for: programs, files, addresses, weaker sandboxes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gem_core
from gem_core.execution.server_client.client import RemoteEnv
from gem_core.execution.server_client.connecting import ServerError

GUESS = "game:GuessTheNumber-v0-easy"
NIM = "multi:Nim-v0-easy"


def attacks(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return environments and parameters: to make a file in the folder, or to read one."""
    marker = str(folder / "marker")
    touch = ["touch", marker]
    files = folder / "rows.jsonl"
    return [
        (NIM, {"game": "subprocess:Popen", "args": touch}),
        (NIM, {"game": "subprocess:check_output", "args": touch}),
        (NIM, {"game": "pathlib:Path"}),
        (NIM, {"args": touch}),
        (NIM, {"opponent": "os:system"}),
        (NIM, {"opponent": "gem_core.cli:main"}),
        ("multi:TicTacToe-v0-hard", {"opponent": "subprocess:Popen"}),
        ("multi:ReturnsDesk-v0", {"user": "antigravity:x"}),
        ("multi:ReturnsDesk-v0", {"user": "code:InteractiveConsole"}),
        ("terminal:files-v0", {"level": "guarded"}),
        ("terminal:files-v0", {"level": "container"}),
        ("terminal:files-v0", {"tasks": [str(folder)]}),
        ("code:Formulas", {"memory_mb": 1 << 20}),
        ("code:Formulas", {"test_s": 1e9}),
        ("math:GSM8K", {"dataset": str(files)}),
        ("math:GSM8K", {"dataset": "../rows.jsonl"}),
        ("math:GSM8K", {"dataset": "somebody/data-set"}),
        ("math:GSM8K", {"revision": "main"}),
        ("math:GSM8K", {"sample": "../../../etc/passwd"}),
        ("webshop:train-text", {"dataset": str(files)}),
        ("game:WikiGame-v0-easy", {"path": "/etc/passwd"}),
        ("game:WikiGame-v0-easy", {"url": "http://127.0.0.1:1/api.php"}),
        ("game:Wordle-v0-easy", {"words": ["a" * 3] * 1000}),
        ("rg:composite", {"datasets": [{"name": "ab", "weight": 1, "config": {}}]}),
        (GUESS, {"max_turns": 10**12}),
        (GUESS, {"rewards": {"success": float("nan")}}),
        ("game:Sokoban-v0-easy", {"dim_room": [10**6, 10**6]}),
        ("gymnasium:os:Env-v0", {}),
        ("textarena:Nim-v0", {"opponent": "os:system", "players": 2}),
        ("remote:x", {"url": "http://127.0.0.1:1"}),
    ]


class Watched:
    """A server in a process of its own, and what it left behind."""

    def __init__(self, folder: Path, *options: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.folder = folder
        command = [sys.executable, "-m", "gem_core.cli", "serve", "--port", str(self.port)]
        env = {k: v for k, v in os.environ.items() if k != "GEM_CORE_SERVER_TOKEN"}
        self.process = subprocess.Popen([*command, *options], cwd=folder, env=env)

    def programs(self) -> list[str]:
        """Return the numbers of the programs that it has started and that run."""
        threads = Path(f"/proc/{self.process.pid}/task").iterdir()
        return " ".join((thread / "children").read_text() for thread in threads).split()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Watched]]:
    """Start servers in an empty folder, that end with the test."""
    servers: list[Watched] = []

    def start_one(*options: str) -> Watched:
        folder = tmp_path / "served"
        folder.mkdir(exist_ok=True)
        (folder / "rows.jsonl").write_text('{"problem": "secret", "answer": "1"}\n')
        servers.append(Watched(folder, *options))
        until = time.monotonic() + 60
        while not listening(servers[-1].port):
            assert time.monotonic() < until and servers[-1].process.poll() is None
            time.sleep(0.05)
        return servers[-1]

    yield start_one
    for server in servers:
        server.end()


def test_no_client_runs_a_program_or_reads_a_file(serve: Callable[..., Watched]) -> None:
    server = serve("--parameters", "--environments", "*", "gymnasium:*", "textarena:*", "remote:*")
    asked = attacks(server.folder)
    with RemoteEnv(GUESS, url=server.url) as neighbour:
        first = neighbour.reset(seed=3)
        for id, parameters in asked:
            body = json.dumps({"environment": id, "parameters": parameters}).encode()
            status, text = posted(f"{server.url}/sessions", body)
            assert status in (400, 404), (id, parameters, text)
            assert "\n" not in json.loads(text)["error"]
            with pytest.raises(ServerError):
                RemoteEnv(id, url=server.url, parameters=parameters).reset(seed=1)
        assert neighbour.step("\\boxed{5}")[0]
        assert first == gem_core.make(GUESS).reset(seed=3)
    assert [path.name for path in server.folder.iterdir()] == ["rows.jsonl"]
    assert server.programs() == []


def posted(url: str, body: bytes) -> tuple[int, str]:
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_the_operators_recipe_allows_its_own_values(serve: Callable[..., Watched]) -> None:
    """Just these, for this id; what is declared may be set besides."""
    folder = serve().folder
    recipe = folder.parent / "mine.toml"
    data = folder / "rows.jsonl"
    recipe.write_text(
        f'name = "mine"\n[[env]]\nid = "math:GSM8K"\nkwargs = {{ dataset = "{data}" }}\n'
    )
    server = serve("--recipe", str(recipe))
    mine = {"dataset": str(data)}
    with RemoteEnv("math:GSM8K", url=server.url, parameters={**mine, "pick": "seed"}) as env:
        assert "secret" in env.reset(seed=0)[0]
    for id, parameters in (
        ("math:GSM8K", {"dataset": f"{data}x"}),
        ("math:GSM8K", {**mine, "columns": {"question": "answer"}}),
        ("math:Orz57K", mine),
    ):
        with pytest.raises(ServerError, match=r"gem-core serve --recipe FILE"):
            RemoteEnv(id, url=server.url, parameters=parameters).reset(seed=1)


def test_the_schema_says_what_may_be_set(start: Callable[..., Any]) -> None:
    server = start(parameters=True)
    schema = json.loads(server.http(f"/env/{NIM}/schema")[1])["parameters"]
    assert schema["properties"]["opponent"] == {"enum": ["random", "perfect"]}
    assert schema["properties"]["heaps"] == {"type": "integer", "minimum": 2, "maximum": 8}
    assert "game" not in schema["properties"] and schema["additionalProperties"] is False
    closed = start()
    assert json.loads(closed.http(f"/env/{NIM}/schema")[1])["parameters"]["properties"] == {}
    assert "parameters" not in json.loads(closed.http("/env/game:None/schema")[1])
