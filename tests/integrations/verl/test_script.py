"""``recipes/verl/train.py`` gives verl what ``gem-core train`` gives it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from gem_core.training.runs import RunDir
from gem_verl.config import WIRING, recipe_settings, translate
from gem_verl.launch import run as train
from gem_verl.launch import run_settings

SCRIPT = Path(__file__).parents[3] / "recipes" / "verl" / "train.py"


@pytest.fixture(scope="module")
def script():
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("verl_train_script", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("resume", [False, True])
def test_it_sets_what_the_launcher_sets(script, tiny, tmp_path, resume):
    recipe = tiny("algorithm.options={per_env=true}")
    run = RunDir.create(tmp_path / "run", recipe, "verl")
    expected = {**WIRING, **recipe_settings(recipe), **run_settings(recipe, run, resume)}
    assert script.settings(recipe, run, resume) == expected


def test_it_prints_verls_command_line(script, tiny, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["train.py", "--print", "--set", "seed=7"])
    script.main()
    first, *arguments = capsys.readouterr().out.splitlines()
    assert first == "python -m verl.trainer.main_ppo \\"
    recipe = script.load_recipe("guess-the-number-easy", "tiny", ["seed=7"])
    assert {line.removesuffix(" \\")[1:] for line in arguments} == set(translate(recipe))


def test_it_trains_as_the_launcher_does(tmp_path):
    """One episode a step: with more, who shares a batch of the CPU engine depends on timing."""
    options = ["model.tiny.warm_start_steps=60", "train.steps=1", "batch.episodes=1"]
    arguments = [word for option in options for word in ("--set", option)]
    command = [sys.executable, str(SCRIPT), "--run", str(tmp_path / "script"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("step 1: success ")
    by_script = RunDir(tmp_path / "script")

    by_launcher = RunDir.create(tmp_path / "launcher", by_script.recipe, "verl")
    train(by_script.recipe, by_launcher)
    assert tokens(by_script) == tokens(by_launcher) != []
    assert metrics(by_script) == metrics(by_launcher) != []
    assert weights(by_script) == weights(by_launcher)


def weights(run):
    """The trained model's weights, byte for byte."""
    return (run.model / "model.safetensors").read_bytes()


def tokens(run):
    """Sampled ids and their log-probabilities."""
    return [
        (segment.token_ids, segment.logprobs)
        for _, episode in run.episodes()
        for segment in episode.segments
    ]


def metrics(run):
    """All metrics that are not seconds."""
    return [
        {name: value for name, value in row.items() if not name.startswith("time")}
        for row in run.metrics()
    ]
