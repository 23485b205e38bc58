"""Runs of TRL whose environments live behind a server."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress

import pytest
import torch
from transformers import AutoModelForCausalLM

from gem_core.errors import GemError, RecipeError
from gem_core.experiment import run_experiment
from gem_core.server import opening
from gem_core.training.run_data import in_run
from gem_core.training.runs import RunDir
from gem_trl import launch

TOKEN = "GEM_CORE_SERVER_TOKEN"
SMALL = ("train.steps=2", "eval.every=2", "eval.inside_episodes=4", "train.log_episodes=8")


@pytest.fixture
def serve(monkeypatch):
    """``serve()``: ``gem-core serve`` on a free port; its process and address."""
    monkeypatch.setenv(TOKEN, "of-the-test")
    processes = []

    def start():
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "gem_core.cli", "serve", "--port", str(port)]
        processes.append(subprocess.Popen(command, env=dict(os.environ)))
        address = f"http://127.0.0.1:{port}"
        until = time.monotonic() + 30
        while time.monotonic() < until:
            with suppress(OSError), urllib.request.urlopen(f"{address}/health"):
                break
            time.sleep(0.05)
        return processes[-1], address

    yield start
    for process in processes:
        process.kill()
        process.wait()


@pytest.fixture
def train(make_recipe, tmp_path):
    """``train(name, *overrides)``: a whole run in this process; returns its directory."""

    def start(name, *overrides):
        recipe = make_recipe(*SMALL, *overrides)
        run = RunDir.create(tmp_path / name, recipe, "trl")
        with in_run(run):
            launch.run(recipe, run)
        return run

    return start


def behind(address):
    return "workers.backend=server", f"workers.address={address}"


def metric(address, name):
    headers = {"Authorization": f"Bearer {os.environ[TOKEN]}"}
    with urllib.request.urlopen(urllib.request.Request(f"{address}/metrics", None, headers)) as it:
        lines = [line.rsplit(" ", 1) for line in it.read().decode().splitlines()]
    return float(dict(line for line in lines if len(line) == 2)[f"gem_core_{name}"])


def played(run):
    episodes = []
    for tags, episode in run.episodes():
        episode.seconds.clear()
        episodes.append((tags["split"], tags["step"], episode))
    return episodes


def test_a_run_behind_a_server_is_the_run_of_this_process(serve, train):
    _, address = serve()
    here = train("here")
    there = train("there", *behind(address))
    assert played(there) == played(here) and len(played(here)) >= 16
    assert there.info["environments"] == here.info["environments"]
    before, after = (
        AutoModelForCausalLM.from_pretrained(run.model).state_dict() for run in (here, there)
    )
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert metric(address, "sessions_opened_total") >= 2 * 8 + 4
    until = time.monotonic() + 20
    while metric(address, "sessions") and time.monotonic() < until:
        time.sleep(0.05)
    assert metric(address, "sessions") == 0


def test_a_server_that_is_gone_stops_the_run_and_says_so(serve, make_recipe, monkeypatch, tmp_path):
    process, address = serve()
    monkeypatch.setattr(opening, "_PATIENCE", dict.fromkeys(opening._PATIENCE, 0.0))
    recipe = make_recipe(*SMALL, *behind(address))
    run = RunDir.create(tmp_path / "run", recipe, "trl")
    with in_run(run):
        process.kill()
        process.wait()
        with pytest.raises(GemError, match=r"100% of the batch's 8 episodes failed.*No server at"):
            launch.run(recipe, run)


def test_a_wrong_token_is_refused_before_anything_is_made(
    serve, make_recipe, monkeypatch, tmp_path
):
    _, address = serve()
    monkeypatch.setenv(TOKEN, "another")
    recipe = make_recipe(*SMALL, *behind(address))
    with pytest.raises(RecipeError, match=f"is {TOKEN} set to its token"):
        run_experiment(recipe, "trl", tmp_path / "run")
    assert not (tmp_path / "run").exists()
