"""Runs of two trainers with episodes, written through `RunDir`, and a server of them.

The tests in ``browser`` need selenium and chromium; they are collected only if their folder is
named (``make test-view``), and then fail where one is missing.
"""

from __future__ import annotations

import http.client
import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from gem_core.episodes.data import Episode, Segment, StopReason, Turn
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import load_recipe
from gem_view.pieces import byte_alphabet
from gem_view.server import make_server

ATTACK = "<script>window.attacked = 1</script ><!--<img src=x onerror='window.attacked = 2'></pre>"
STEPS = 3
PER_STEP = 4


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    named = any("browser" in Path(argument.split("::")[0]).parts for argument in config.args)
    return True if collection_path.name == "browser" and not named else None


def encode(text: str) -> list[int]:
    return list(text.encode())


def make_episode(index: int, guess: int, seed: int) -> Episode:
    """An episode of two turns in which ``guess`` is the second action; 7 is right."""
    first = f"Guess a number & win. {ATTACK if index == 1 else ''}"
    second = "Wrong, é, try again 🎲."
    actions = [r"\boxed{3}", rf"\boxed{{{guess}}}"]
    segment = Segment()
    segment.logprobs = []
    for number, (observation, action) in enumerate(zip((first, second), actions, strict=True)):
        start = len(segment.token_ids)
        ids = encode(observation)
        segment.add_context(ids)
        start += len(ids)
        sampled = encode(action)
        segment.token_ids += sampled
        segment.loss_mask += [1] * len(sampled)
        segment.logprobs += [-0.1 * (k + 1) for k in range(len(sampled))]
        segment.spans.append((number, start, start + len(sampled)))
    right = guess == 7
    turns = [
        Turn(0, first, actions[0], 0.0, info={"suffix": "Next?", "tool": {"name": "dice"}}),
        Turn(1, second, actions[1], float(right), terminated=True, info={"success": right}),
    ]
    return Episode(
        "game:Test-v0",
        seed,
        index // 2,
        index,
        turns,
        [segment],
        StopReason.TERMINATED,
        right,
        "The end.",
    )


def log_step(run: RunDir, step: int, guess: int) -> None:
    episodes = [
        make_episode(index, guess if index == 2 else 7, seed=index // 2)
        for index in range((step - 1) * PER_STEP, step * PER_STEP)
    ]
    run.log(step, {"success/mean": step / STEPS, "reward/mean": 0.1 * step, "loss/policy": -0.5})
    run.log_episodes(step, episodes, advantages=[[0.5, -1.0]] * len(episodes))


def make_run(path: Path, trainer: str, guess: int, finished: bool = True) -> RunDir:
    recipe = load_recipe("guess-the-number-easy", "tiny", ["train.steps=3"])
    run = RunDir.create(path, recipe, trainer)
    evaluation = {"success/mean": 0.25, "success/low": 0.1, "success/high": 0.4, "episodes": 8.0}
    run.log_eval(0, "before", evaluation)
    for step in range(1, STEPS + 1):
        log_step(run, step, guess)
    run.model.mkdir()
    write_tokenizer(run.model / "tokenizer.json")
    if finished:
        after = {**evaluation, "success/mean": 0.75 if trainer == "trl" else 0.5}
        run.finish({"before": evaluation, "after": after, "seconds": {"train": 3.0}})
    return run


def write_tokenizer(path: Path) -> None:
    data = {
        "model": {"vocab": byte_alphabet()},
        "decoder": {"type": "ByteLevel"},
        "added_tokens": [],
    }
    path.write_text(json.dumps(data), encoding="utf-8")


def changed(episode: Episode, **values: object) -> Episode:
    return replace(episode, **values)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def grid(tmp_path_factory):
    """A grid of two runs that differ in one action of the first step."""
    folder = tmp_path_factory.mktemp("grid")
    make_run(folder / "test" / "oat" / "seed0", "oat", guess=9)
    make_run(folder / "test" / "trl" / "seed0", "trl", guess=7, finished=False)
    return folder


@pytest.fixture
def runs(grid, tmp_path, monkeypatch):
    """A copy of the grid; the index is in a cache of its own."""
    monkeypatch.setenv("GEM_CORE_CACHE", str(tmp_path / "cache"))
    return shutil.copytree(grid, tmp_path / "grid")


@pytest.fixture
def server(runs):
    server = make_server([runs])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def ask(server):
    """``ask(path, method, **headers)`` -> (status, headers, body)."""

    def ask(path, method="GET", host=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
        connection.putrequest(method, path, skip_host=True)
        if host != "":
            connection.putheader("Host", host or f"127.0.0.1:{server.server_port}")
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response.status, response.headers, body

    return ask


@pytest.fixture
def get(ask):
    """``get("api/runs")`` -> the answer."""

    def get(path):
        status, _, body = ask(f"/{path}")
        assert status == 200, body
        return json.loads(body)

    return get
