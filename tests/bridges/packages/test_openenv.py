"""The released OpenEnv: its client plays our environments, and ours play its server's."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openenv.core import GenericEnvClient

import gem_core
from gem_core.errors import EpisodeStateError
from gem_core.execution.server_client.socket_client import ServerError

GUESS = "game:GuessTheNumber-v0-easy"
ROOT = Path(__file__).resolve().parents[3]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def serve(*command: str, port: int) -> Iterator[str]:
    """Run a server until the test ends; yield its address."""
    child = subprocess.Popen([sys.executable, *command])
    until = time.monotonic() + 60
    while time.monotonic() < until and child.poll() is None:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.1)
    yield f"http://127.0.0.1:{port}"
    child.terminate()
    child.wait(20)


@pytest.fixture
def theirs() -> Iterator[str]:
    port = free_port()
    yield from serve(str(Path(__file__).parent / "openenv_server.py"), str(port), port=port)


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("GEM_CORE_SERVER_TOKEN", "a-token")
    port = free_port()
    yield from serve("-m", "gem_core.cli", "serve", "--port", str(port), port=port)


def test_its_client_plays_our_environment(ours: str) -> None:
    here = gem_core.make(GUESS)
    headers = {"Authorization": "Bearer a-token"}
    with GenericEnvClient(base_url=f"{ours}/env/{GUESS}", headers=headers).sync() as there:
        for seed in range(3):
            assert there.reset(seed=seed).observation["text"] == here.reset(seed=seed)[0]
            done = False
            guess = 0
            while not done:
                guess += 1
                expected = here.step(f"\\boxed{{{guess}}}")
                result = there.step({"text": f"\\boxed{{{guess}}}"})
                assert (result.observation["text"], result.reward) == expected[:2]
                done = result.done
                assert done == expected[2]
            assert there.state()["step_count"] == guess
        with pytest.raises(RuntimeError, match="VALIDATION_ERROR"):
            there.step({"move": "1"})
    with pytest.raises(ConnectionError), GenericEnvClient(f"{ours}/env/{GUESS}").sync() as refused:
        refused.reset()


def test_the_program_of_the_page_runs(ours: str) -> None:
    page = (ROOT / "docs" / "server.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(from openenv.*?)```", page, re.DOTALL)
    address = "http://127.0.0.1:8000"
    assert block.count(address) == block.count("Bearer ...") == 1
    names: dict[str, Any] = {}
    exec(block.replace(address, ours).replace("Bearer ...", "Bearer a-token"), names)
    assert "1 1 3" in block and names["result"].observation["text"] and not names["result"].done


def test_our_client_plays_its_server(theirs: str) -> None:
    env = gem_core.make("openenv:guess", url=theirs, action="message")
    observation, info = env.reset(seed=5)
    assert "from 1 to 10" in observation
    assert info["bridge"]["seeds"] == "decide"
    results = [env.step(str(number)) for number in (1, 2, 3)]
    again = gem_core.make("openenv:guess", url=theirs, action="message")
    assert again.reset(seed=5)[0] == observation
    assert [again.step(str(number)) for number in (1, 2, 3)] == results
    assert results[-1][2]
    assert results[-1][4]["success"] is False
    with pytest.raises(EpisodeStateError):
        env.get_state()
    for guess in range(1, 11):
        env.reset(seed=5)
        _, reward, done, _, last = env.step(str(guess))
        if done:
            assert (reward, last["success"]) == (1.0, True)
            break
    else:
        raise AssertionError("no number was right")
    env.close()
    again.close()


def test_its_errors_are_told(theirs: str) -> None:
    env = gem_core.make("openenv:guess", url=theirs, action="text")
    env.reset(seed=1)
    with pytest.raises(ServerError, match="Invalid message"):
        env.step("1")
    env.close()


RECIPE = """
base = "games"
name = "bridges"
{tables}
"""
TABLES = {
    "gem-llm": """
[[env]]
id = "gem:game:GuessTheNumber-v0-easy"
[[env]]
id = "gem:game:Sudoku-v0-easy"
[[env]]
id = "gem:rg:letter_counting"
""",
    "gymnasium": """
[[env]]
id = "gymnasium:text_task:Echo-v0"
""",
    "textarena": """
[[env]]
id = "textarena:GuessTheNumber-v0"
""",
    "openenv": """
[[env]]
id = "openenv:guess"
kwargs = { url = "URL", action = "message" }
""",
    "remote": """
[[env]]
id = "remote:game:GuessTheNumber-v0-easy"
kwargs = { url = "URL" }
""",
}


@pytest.mark.parametrize("package", sorted(TABLES))
def test_two_steps_in_trl(package: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Real optimizer steps of the released TRL on each package's environments."""
    import json

    tables = TABLES[package]
    if package in ("openenv", "remote"):
        url = request.getfixturevalue("theirs" if package == "openenv" else "ours")
        tables = tables.replace("URL", url)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE.format(tables=tables))
    settings = ["train.steps=2", "train.save_every=0", "batch.episodes=6", "eval.episodes=3"]
    settings += ["limits.max_context_tokens=2048"]
    # An OpenEnv server offers nothing that a warm start could imitate.
    warm = 0 if package == "openenv" else 2
    settings += ["model.tiny.max_positions=2048", f"model.tiny.warm_start_steps={warm}"]
    run = tmp_path / "run"
    command = [sys.executable, "-m", "gem_core.cli", "train", str(recipe), "--trainer", "trl"]
    command += ["--profile", "tiny", "--run", str(run)]
    for setting in settings:
        command += ["--set", setting]
    if package == "gymnasium":  # its ids name a module
        refused = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert refused.returncode == 2 and "give --trust" in refused.stderr and not run.exists()
        command.append("--trust")
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "success/mean" in line]
    assert [line["step"] for line in steps] == [1, 2]
    for line in steps:
        assert line["stop/env_error"] == line["stop/deadline"] == line["stop/aborted"] == 0
        assert line["turns/mean"] >= 1
    rows = json.loads((run / "run.json").read_text())["environments"]
    assert rows and all(row["id"].split(":")[0] in tables for row in rows)
    for row in rows:
        if package == "remote":
            assert row["provenance"]["server_fingerprint"] in done.stdout
        else:
            assert row["provenance"] == {"seeds": "decide"}
