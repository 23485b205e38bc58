"""A model whose files lack weights is refused before and after training, by command and script."""

from __future__ import annotations

import shutil

import pytest
from safetensors.torch import load_file, save_file

from gem_core.errors import RecipeError, RunError
from gem_core.policies.models.weights import missing_weights, require_export
from gem_core.training.experiment import run_experiment, training

LOST = "model.layers.1.mlp.up_proj.weight"


@pytest.fixture
def incomplete(model_dir, tmp_path):
    """A model whose files lack one weight."""
    folder = tmp_path / "model"
    shutil.copytree(model_dir, folder)
    weights = load_file(folder / "model.safetensors")
    del weights[LOST]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.fixture
def recipe(tiny, incomplete):
    return tiny(f"model.path={incomplete}", "eval.episodes=0")


def test_tied_weights_are_not_missing(model_dir, incomplete):
    assert missing_weights(str(model_dir)) == []
    assert missing_weights(str(incomplete)) == [LOST]


def test_the_command_refuses_it_and_leaves_no_directory(recipe, trainer_name, tmp_path):
    with pytest.raises(RecipeError, match=rf"model\.path: 1 weights \({LOST}\)"):
        run_experiment(recipe, trainer_name, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_script_refuses_it_and_leaves_no_directory(recipe, trainer_name, tmp_path):
    with (
        pytest.raises(RecipeError, match="would be random"),
        training(tmp_path / "run", recipe, trainer_name),
    ):
        raise AssertionError("the block was entered")
    assert not (tmp_path / "run").exists()


def test_a_trainer_that_exports_half_a_model_fails(
    tiny, trainer_name, tmp_path, incomplete, monkeypatch
):
    def launch(resolved, run, *, resume):
        shutil.copytree(incomplete, run.model)

    monkeypatch.setattr("gem_core.training.experiment.launch", launch)
    with pytest.raises(RunError, match=f"trained to the end.*{LOST}"):
        run_experiment(tiny("eval.episodes=0"), trainer_name, tmp_path / "run")


def test_no_model_is_named_as_that(tmp_path):
    with pytest.raises(RunError, match="wrote no model"):
        require_export("trl", tmp_path)
