"""How the places of a recipe are counted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.recipe.worker_checks import check_workers
from gem_core.runs.splits import split_envs
from gem_core.runs.task_overlap import task_overlap
from gem_core.runs.tasks import train_task

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run_path(load_tool, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))  # it imports import_graph
    return load_tool("run_path")


@pytest.fixture
def recipe():
    return load_recipe("guess-the-number-easy", "tiny")


def test_a_module_that_asks_again_is_another_place(run_path, recipe):
    with run_path.Calls(ROOT) as calls:
        check_workers(recipe)
        train_task(recipe, 0)
        train_task(recipe, 1)
        task_overlap(recipe)
        split_envs(recipe, "train")
    assert sys.getprofile() is None
    asked = [(p.caller.rpartition(".")[2], p.name, n) for p, n in calls.places.items()]
    assert ("", "train_task", 2) in asked
    assert {caller for caller, name, _ in asked if name == "train_task"} == {"", "task_overlap"}
    assert not [p for p in calls.places if p.caller == p.module]
    assert next(iter(calls.places)).package() == "gem_core.runs.recipe"


def test_climbs_are_counted_by_the_layers_of_the_map(run_path):
    modules = ("gem_core.training.experiment", "gem_core.runs.splits", "gem_core.evaluation.local")
    places = [run_path.Place("", module, "f") for module in (*modules, "gem_trl.launch")]
    assert run_path.climbs(places) == 2
    assert run_path.climbs(places[::-1]) == 1
    assert [place.package() for place in places][-1] == "gem_trl"
