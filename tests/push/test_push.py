"""``gem-core push``: the folder, the card, and the upload to a double of the Hub."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gem_core.cli import main
from gem_core.episodes.data import Episode, Segment, StopReason, Turn
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import load_recipe

TOKEN = "hf_" + "x" * 30
RATES = {"success/mean": 0.5, "success/low": 0.4, "success/high": 0.6, "reward/mean": 0.5}
RESULT = {
    "format": 2,
    "name": "guess-the-number-easy",
    "trainer": "trl",
    "estimator": "rebn",
    "model": "tiny",
    "seed": 0,
    "steps": 2,
    "episodes": 4,
    "before": {**RATES, "success/mean": 0.1, "success/low": 0.05, "success/high": 0.2},
    "after": RATES,
    "seconds": {"train": 3.0},
    "environments": [{"id": "game:<b>Guess</b>|-v0"}],
    "versions": {},
    "python": "3.11",
    "hardware": {},
    "commit": "abc",
}


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    recipe = load_recipe("guess-the-number-easy")
    run = RunDir.create(tmp_path / "run", recipe, "trl")
    turn = Turn(0, "Guess.", r"\boxed{7}", 1.0, terminated=True, info={"success": True})
    episode = Episode("game:G-v0", 0, 0, 0, [turn], [Segment()], StopReason.TERMINATED, True, "")
    for step in (1, 2):
        run.log(step, {"success/mean": step / 2, "reward/mean": 0.1})
        run.log_episodes(step, [episode])
    run.log_eval(0, "before", RESULT["before"])
    run.model.mkdir()
    (run.model / "config.json").write_text("{}")
    (run.model / "model.safetensors").write_bytes(b"weights")
    (run.model / "training_args.bin").write_bytes(b"a pickle")
    (run.model / "modeling.py").write_text("import os")
    run.finish(RESULT)
    return run


def push(run: RunDir, *options: str) -> int:
    return main(["push", str(run.path), "me/model", *options])


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_a_dry_run_writes_what_only_holds_data(
    run: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert push(run, "--dry-run", str(out)) == 0
    assert names(out) == {
        "README.md",
        "config.json",
        "model.safetensors",
        "recipe.json",
        "recipe.toml",
        "metrics.jsonl",
        "evals.jsonl",
        "episodes.jsonl.gz",
        "learning-curve.png",
    }
    said = capsys.readouterr().out
    assert "training_args.bin" in said and "modeling.py" in said
    wanted = json.loads(json.dumps(run.recipe.to_dict()))
    assert json.loads((out / "recipe.json").read_text()) == wanted


def test_the_card_says_what_was_measured_and_nothing_else(run: RunDir, tmp_path: Path) -> None:
    assert push(run, "--dry-run", str(tmp_path / "out"), "--no-episodes") == 0
    card = (tmp_path / "out" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\n")
    assert "0.500 [0.400, 0.600]" in card and "0.100 [0.050, 0.200]" in card
    assert "game:&lt;b&gt;Guess&lt;/b&gt;\\|-v0" in card and "<b>" not in card
    assert "Lockstep" not in card and "Controls" not in card
    assert str(tmp_path) not in card
    assert "episodes.jsonl.gz" not in names(tmp_path / "out")


def lockstep(path: Path, **changes: Any) -> Path:
    pairs = [
        {"trainers": ["trl", "verl"], "identical": 15},
        {"trainers": ["oat", "verl"], "identical": 3},
    ]
    summary = {"format": 1, "baseline": "guess-the-number-easy", "seed": 0, "steps": 16}
    summary |= {"runs": {}, "pairs": pairs, **changes}
    path.write_text(json.dumps(summary))
    return path


def test_lockstep_is_stated_for_the_trainer_of_the_run(run: RunDir, tmp_path: Path) -> None:
    file = lockstep(tmp_path / "lockstep.json")
    assert push(run, "--dry-run", str(tmp_path / "out"), "--lockstep", str(file)) == 0
    card = (tmp_path / "out" / "README.md").read_text()
    assert "| verl | 15 of 16 |" in card and "| oat |" not in card


@pytest.mark.parametrize("changes", [{"seed": 1}, {"baseline": "other"}, {"format": 2}])
def test_lockstep_of_another_experiment_is_refused(
    run: RunDir, tmp_path: Path, changes: dict[str, Any]
) -> None:
    file = lockstep(tmp_path / "lockstep.json", **changes)
    assert push(run, "--dry-run", str(tmp_path / "out"), "--lockstep", str(file)) == 2
    assert not (tmp_path / "out" / "README.md").exists()


@pytest.mark.parametrize("name", ["model/vocab.json", "episodes.jsonl.gz", "metrics.jsonl"])
def test_a_link_out_of_the_run_is_refused(
    run: RunDir, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "private").write_text("not yours")
    (run.path / name).unlink(missing_ok=True)
    (run.path / name).symlink_to(tmp_path / "private")
    assert push(run, "--dry-run", str(tmp_path / "out")) == 2
    assert "is a link" in capsys.readouterr().err


def test_a_linked_model_folder_is_refused(run: RunDir, tmp_path: Path) -> None:
    run.model.rename(tmp_path / "elsewhere")
    run.model.symlink_to(tmp_path / "elsewhere")
    assert push(run, "--dry-run", str(tmp_path / "out")) == 2


@pytest.mark.parametrize("repo", ["model", "a/b/c", "../x", "a/../b", "a b/c"])
def test_a_wrong_name_of_a_repository_is_refused(run: RunDir, tmp_path: Path, repo: str) -> None:
    assert main(["push", str(run.path), repo, "--dry-run", str(tmp_path / "out")]) == 2


def test_a_folder_with_files_is_not_written_into(run: RunDir, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").touch()
    assert push(run, "--dry-run", str(tmp_path / "out")) == 2
    assert names(tmp_path / "out") == {"mine.txt"}


class Hub(BaseHTTPRequestHandler):
    """The part of the Hub's API that an upload of small files uses; files come as base64."""

    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((self.path, self.headers.get("Authorization", "")))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.answer(401, {"error": "who are you"})
        elif self.path == "/api/repos/create":
            self.server.created = json.loads(body)
            self.answer(200, {"url": f"{self.server.address}/me/model", "id": "me/model"})
        elif self.path == "/api/validate-yaml":  # the client has the card checked
            self.answer(200, {"errors": [], "warnings": []})
        elif self.path.startswith("/api/models/me/model/preupload/"):
            files = json.loads(body)["files"]
            mode = {"uploadMode": "regular", "shouldIgnore": False}
            self.answer(200, {"files": [{"path": file["path"], **mode} for file in files]})
        elif self.path.startswith("/api/models/me/model/commit/"):
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    value = line["value"]
                    self.server.files[value["path"]] = base64.b64decode(value["content"])
            url = f"{self.server.address}/me/model/commit/1"
            self.answer(200, {"commitUrl": url, "commitOid": "1"})
        else:
            self.answer(404, {"error": self.path})

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Authorization", "")))
        self.answer(404, {"error": "not here"})

    def answer(self, status: int, data: dict[str, Any]) -> None:
        content = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    """Keeps what it was sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Hub)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str]] = []
        self.created: dict[str, Any] = {}


@pytest.fixture
def hub():
    pytest.importorskip("huggingface_hub", reason="the extra hub")
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def push_to(hub: Server, run: RunDir, token: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Push in a process of its own: huggingface_hub reads its environment when imported."""
    own = {"HF_ENDPOINT": hub.address, "HF_TOKEN": token, "HF_HOME": str(home)}
    own |= {
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "NO_PROXY": "127.0.0.1",
    }
    command = [sys.executable, "-m", "gem_core.cli", "push", str(run.path), "me/model", "--private"]
    return subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True)


def test_the_real_client_uploads_the_folder(hub: Server, run: RunDir, tmp_path: Path) -> None:
    outcome = push_to(hub, run, TOKEN, tmp_path / "home")
    assert outcome.returncode == 0, (outcome.stderr, hub.asked)
    assert outcome.stdout.splitlines()[-1] == f"{hub.address}/me/model/commit/1"
    assert push(run, "--dry-run", str(tmp_path / "out")) == 0
    assert set(hub.files) == names(tmp_path / "out")
    assert hub.files["model.safetensors"] == b"weights"
    assert hub.files["README.md"] == (tmp_path / "out" / "README.md").read_bytes()
    assert hub.created.get("private") is True or hub.created.get("visibility") == "private"
    everything = [outcome.stdout.encode(), outcome.stderr.encode(), *hub.files.values()]
    assert not any(TOKEN.encode() in text for text in everything)


def test_a_refusal_is_one_line_without_the_token(hub: Server, run: RunDir, tmp_path: Path) -> None:
    wrong = "hf_" + "w" * 30
    outcome = push_to(hub, run, wrong, tmp_path / "home")
    assert outcome.returncode == 2 and hub.files == {}
    assert "401; log in with `hf auth login`" in outcome.stderr
    assert wrong not in outcome.stdout + outcome.stderr
