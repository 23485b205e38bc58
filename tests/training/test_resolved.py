"""What a run is, worked out once: what the object holds, what is recorded, who asks again."""

from __future__ import annotations

import dataclasses
import json

import pytest

from gem_core.errors import RecipeError, UnknownNameError
from gem_core.runs import resolved as module
from gem_core.runs import splits
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.resolved import read_resolved, resolve_run, shown
from gem_core.runs.splits import run_envs
from gem_core.runs.task_overlap import task_overlap
from gem_core.runs.tasks import MachineFactory, eval_task, train_task
from gem_core.training.experiment import training

GUESS = "guess-the-number-easy"
TWO = "env=[{id='qa:HotpotQA', kwargs={dataset='sample'}}, {id='game:Sudoku-v0-easy'}]"


@pytest.fixture
def recipe():
    return load_recipe(GUESS, "tiny", [TWO])


def test_it_holds_what_follows_from_the_recipe(recipe):
    found = resolve_run(recipe, "trl")
    assert found.trainer.name == "trl" and found.recipe is recipe and found.model is None
    assert found.native["max_steps"] >= recipe.train.steps
    assert [env.key for env in found.envs["train"]] == ["env.0", "env.1"]
    assert [env.config.kwargs.get("part") for env in found.envs["eval"]] == ["eval", None]
    assert [row["id"] for row in found.environments[:2]] == ["qa:HotpotQA", "game:Sudoku-v0-easy"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.model = "other"
    assert found.with_model("folder").model == "folder" and found.model is None


def test_a_recipe_that_the_trainer_refuses_makes_no_environment(monkeypatch):
    recipe = load_recipe(GUESS, "tiny", ["hardware.engine=sglang"])
    monkeypatch.setattr(module, "describe_environments", lambda *_: pytest.fail("made"))
    with pytest.raises(RecipeError, match=r"hardware\.engine"):
        resolve_run(recipe, "trl")
    with pytest.raises(UnknownNameError, match="trl"):
        resolve_run(recipe, "trll")


def test_another_process_reads_the_same(recipe, tmp_path):
    found = resolve_run(recipe, "trl")
    run = RunDir.create(tmp_path / "run", recipe, "trl")
    run.record(found.record())
    again = read_resolved(RunDir(run.path))
    assert again == found
    assert run.info["native"] == shown(found.native)


def test_a_script_leaves_no_directory_for_a_recipe_that_the_trainer_refuses(tmp_path):
    recipe = load_recipe(GUESS, "tiny", ["hardware.engine=sglang"])
    with pytest.raises(RecipeError, match=r"hardware\.engine"), training(tmp_path, recipe, "trl"):
        raise AssertionError("the block was entered")
    assert not (tmp_path / "run.json").exists()


def test_the_record_of_a_script_has_the_native_configuration(recipe, tmp_path):
    with training(tmp_path / "run", recipe, "trl") as run:
        assert read_resolved(run).environments == tuple(run.info["environments"])
    text = (run.path / "run.json").read_text()
    assert json.loads(text)["native"]["max_steps"] == read_resolved(run).native["max_steps"]


def test_secrets_are_not_recorded():
    words = ["--hub_token", "abcdefgh12", "+a.api_key=abcdefgh12", "lr=1e-6"]
    assert shown(words) == ["--hub_token", "***", "+a.api_key=***", "lr=1e-6"]
    table = {"hub_token": "abcdefgh12", "betas": (0.9, 0.95), "kind": object, "pad_token": "x"}
    hidden = shown(table)
    assert hidden["hub_token"] == "***" and hidden["pad_token"] == "x"
    assert hidden["betas"] == [0.9, 0.95] and hidden["kind"] == str(object)


def test_what_is_handed_down_is_not_asked_again(recipe, monkeypatch):
    envs = run_envs(recipe)
    expected = [MachineFactory(recipe)(task(recipe, k)).start() for task, k in TASKS]
    counted = task_overlap(recipe)
    monkeypatch.setattr(splits, "split_envs", lambda *_: pytest.fail("asked again"))
    factory = MachineFactory(recipe, envs=envs)
    assert [factory(task(recipe, k)).start() for task, k in TASKS] == expected
    assert task_overlap(recipe, envs) == counted


TASKS = [(train_task, 0), (train_task, 9), (eval_task, 0), (eval_task, 1)]
