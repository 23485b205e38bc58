"""Checks of an experiment before training; tests/evaluation runs whole experiments."""

from __future__ import annotations

import json
import shutil
import sys

import pytest

from gem_core.errors import MissingDependencyError, UnknownNameError
from gem_core.results import learning_curve
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.tracking.follow import STATE
from gem_core.runs.tracking.progress import progress
from gem_core.training.experiment import run_experiment, training


@pytest.fixture
def recipe():
    return load_recipe("guess-the-number-easy", "tiny", ["train.steps=20"])


def test_an_unknown_trainer_leaves_no_directory(recipe, tmp_path):
    with pytest.raises(UnknownNameError, match="Did you mean 'trl'"):
        run_experiment(recipe, "trll", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_missing_trainer_leaves_no_directory(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("gem_core.runs.trainers.installed_version", lambda _: None)
    with pytest.raises(MissingDependencyError, match="gem-core doctor"):
        run_experiment(recipe, "trl", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_missing_engine_of_the_evaluations_leaves_no_directory(tmp_path, monkeypatch):
    monkeypatch.setattr("gem_core.runs.trainers.require", lambda *_: None)
    monkeypatch.setattr("gem_core.training.eval_engine.find_spec", lambda name: None)
    recipe = load_recipe("guess-the-number-easy", "tiny", ["eval.engine=vllm"])
    with pytest.raises(MissingDependencyError, match=r"pip install vllm==.*eval.engine=hf"):
        run_experiment(recipe, "trl", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_progress_is_logged_in_ten_lines(recipe, tmp_path):
    run = RunDir.create(tmp_path / "run", recipe, "trl")
    lines = []
    with progress(run, 20, lines.append):
        for step in range(1, 21):
            run.log(step, {"success/mean": step / 20})
    assert len(lines) == 10
    assert lines[0].startswith("step  2/20  success 0.075")
    assert lines[-1].endswith("0 s left")


def test_progress_of_a_resumed_run_logs_the_remaining_steps(recipe, tmp_path):
    run = RunDir.create(tmp_path / "run", recipe, "trl")
    lines = []
    for step in range(1, 13):
        run.log(step, {"success/mean": 0.0})
    with progress(run, 20, lines.append):
        for step in range(13, 21):
            run.log(step, {"success/mean": 1.0})
    assert [line.split()[1] for line in lines] == ["14/20", "16/20", "18/20", "20/20"]


def test_the_same_runs_give_the_same_picture(recipe, tmp_path):
    run = RunDir.create(tmp_path / "run", recipe, "trl")
    for step in range(1, 21):
        run.log(step, {"success/mean": step / 20})
    first, again = (learning_curve([run], tmp_path / name) for name in ("a.png", "b.png"))
    assert first.read_bytes() == again.read_bytes()


def test_a_missing_tracker_leaves_no_directory(tmp_path, monkeypatch):
    monkeypatch.setattr("gem_core.runs.trainers.require", lambda *_: None)
    monkeypatch.setitem(sys.modules, "wandb", None)
    recipe = load_recipe("guess-the-number-easy", "tiny", ["track.to=['wandb']"])
    with pytest.raises(MissingDependencyError, match="pip install wandb"):
        run_experiment(recipe, "trl", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_is_followed_by_the_trackers_of_its_recipe(tmp_path, monkeypatch):
    """The trainer is replaced: it logs two steps and hands its model over."""

    def launch(resolved, run, *, resume):
        for step in (1, 2):
            run.log(step, {"success/mean": step / 2})
        shutil.copytree(recipe.model.path, run.model)

    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    monkeypatch.setattr("gem_core.runs.trainers.require", lambda *_: None)
    monkeypatch.setattr("gem_core.training.experiment.launch", launch)
    for name in ("require_complete", "complete_model"):  # these read weights
        monkeypatch.setattr(f"gem_core.training.experiment.{name}", lambda *_: None)
    keys = ["track.to=['tensorboard']", "eval.episodes=0", f"model.path={tmp_path / 'model'}"]
    recipe = load_recipe("guess-the-number-easy", "tiny", keys)
    run = run_experiment(recipe, "trl", tmp_path / "run", log=lambda line: None)
    assert list((run.path / "tensorboard").glob("events.*"))
    assert json.loads((run.path / STATE).read_text())["tensorboard"]["step"] == 2


def test_a_script_has_the_trackers_of_its_recipe(tmp_path, monkeypatch):
    recipe = load_recipe("guess-the-number-easy", "tiny", ["track.to=['tensorboard']"])
    with training(tmp_path / "run", recipe, "trl") as run:
        run.log(1, {"success/mean": 0.5})
    assert list((run.path / "tensorboard").glob("events.*"))
    assert json.loads((run.path / STATE).read_text())["tensorboard"]["step"] == 1
    monkeypatch.setitem(sys.modules, "wandb", None)
    other = load_recipe("guess-the-number-easy", "tiny", ["track.to=['wandb']"])
    with (
        pytest.raises(MissingDependencyError, match="wandb"),
        training(tmp_path / "other", other, "trl"),
    ):
        raise AssertionError("the block was entered")
    assert not (tmp_path / "other").exists()
