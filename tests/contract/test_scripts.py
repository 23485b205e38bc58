"""The scripts in recipes/ treat a run directory as ``gem-core train`` does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gem_core.errors import RecipeError
from gem_core.runs.directory.lock import exclusive
from gem_core.training.experiment import run_experiment

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.fixture
def script(trainer_name):
    """``script(path, *overrides)``: run the trainer's script; returns what it printed."""

    def start(path, *overrides):
        sets = [part for override in overrides for part in ("--set", override)]
        command = [sys.executable, str(RECIPES / trainer_name / "train.py"), "--run", str(path)]
        return subprocess.run([*command, *sets], capture_output=True, text=True, timeout=600)

    return start


@pytest.fixture
def refused(config, trainer_name):
    """An override that the trainer refuses: a native key that the recipe decides."""
    return f"trainer.{trainer_name}.{min(config.NATIVE_OWNED)}=1"


def test_a_script_leaves_the_run_of_another_process_alone(script, tmp_path):
    path = tmp_path / "run"
    with exclusive(path):
        done = script(path)
    assert done.returncode != 0 and "is in use by process" in done.stderr
    assert [entry.name for entry in path.iterdir()] == ["run.lock"]


def test_a_recipe_that_a_script_refuses_leaves_no_directory(script, refused, tmp_path):
    done = script(tmp_path / "run", refused)
    assert done.returncode != 0 and "RecipeError" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_recipe_that_the_trainer_refuses_leaves_no_directory(
    refused, tiny, trainer_name, tmp_path
):
    with pytest.raises(RecipeError):
        run_experiment(tiny(refused), trainer_name, tmp_path / "run")
    assert not (tmp_path / "run").exists()
