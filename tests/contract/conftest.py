"""The adapter under test, its configuration module and a small model to replay with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import load_recipe
from gem_parity.frozen import frozen_episodes

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
SMALL_RUN = (
    "batch.episodes=8",
    "train.steps=2",
    "train.save_every=0",
    "eval.episodes=0",
    "algorithm.epochs=1",
)


@pytest.fixture(scope="session")
def package(trainer_name):
    """Import name of the adapter."""
    return f"gem_{trainer_name}"


@pytest.fixture(scope="session")
def config(package):
    """The adapter's ``config`` module."""
    return import_module(f"{package}.config")


@pytest.fixture(scope="session")
def refused(trainer_name):
    """What the trainer is expected to refuse: key, or key=value -> the key that it names."""
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "parity" / "refusals.json"
    return json.loads(path.read_text(encoding="utf-8")).get(trainer_name, {})


@pytest.fixture
def tiny():
    """``tiny(*overrides)``: the tiny recipe of the first baseline."""
    return lambda *overrides: load_recipe("guess-the-number-easy", "tiny", overrides)


@pytest.fixture(scope="session")
def episodes():
    """The frozen batch, fresh for each use: ``episodes()``."""
    return lambda: frozen_episodes(16, group_size=2)


@pytest.fixture
def package_path(tmp_path, monkeypatch):
    """``package_path(name, source, entry_points)``: an installed package, in all processes."""

    def install(name, source, entry_points=""):
        folder = tmp_path / "packages"
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (folder / f"{name}.py").write_text(source)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(entry_points)
        paths = [str(folder), os.environ.get("PYTHONPATH", "")]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
        return folder

    return install


@pytest.fixture
def train(tmp_path, trainer_name):
    """``train(name, *overrides)``: a small run of a recipe: status, output, directory.

    By the command line, or with ``script=True`` by the trainer's script in recipes/.
    """

    def start(name, *overrides, recipe="guess-the-number-easy", script=False):
        path = tmp_path / name
        by_command = ["-m", "gem_core.cli", "train", str(recipe), "--trainer", trainer_name]
        by_script = [str(RECIPES / trainer_name / "train.py"), "--baseline", str(recipe)]
        command = [sys.executable, *(by_script if script else by_command)]
        command += ["--profile", "tiny", "--run", str(path)]
        for override in (*SMALL_RUN, *overrides):
            command += ["--set", override]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        return done.returncode, done.stdout + done.stderr, RunDir(path)

    return start


@pytest.fixture(scope="module")
def adapter(package, refused):
    """The replay module of a trainer, which trains episodes of several rows."""
    from gem_parity.replays import load_replay

    assert "context.history" not in refused, "every trainer trains every history"
    return load_replay(package.removeprefix("gem_"))


@pytest.fixture(scope="module")
def expect(model_dir):
    """The reference's first update on frozen episodes: of a recipe and the episodes."""
    from transformers import AutoModelForCausalLM

    from gem_parity.reference import reference
    from gem_parity.replay import expected_rows

    def run(recipe, episodes):
        model = AutoModelForCausalLM.from_pretrained(model_dir).float()
        return reference(recipe, expected_rows(recipe, episodes), model)

    return run
