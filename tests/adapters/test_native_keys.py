"""Native keys that something else decides are refused, however they are written."""

from __future__ import annotations

import re

import pytest

from gem_adapters.native_keys import bare, native_table, parents, refuse_native
from gem_core.errors import RecipeError
from gem_core.runs.recipe.recipe import Recipe

OWNED = {"actor.optim.lr": "set algorithm.lr instead", "train_batch": "set batch.episodes instead"}


def recipe(table):
    return Recipe(name="x", env=[], trainer={"verl": table})


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({"actor.optim.lr": 1}, "actor.optim.lr: set algorithm.lr instead."),
        ({"actor": {"optim": {"lr": 1}}}, "actor.optim.lr: set algorithm.lr instead."),
        ({"actor": {"optim.lr": 1}}, "actor.optim.lr: set algorithm.lr instead."),
        ({"++actor.optim.lr": 1}, "actor.optim.lr: set algorithm.lr instead."),
        ({"~actor.optim.lr": 1}, "actor.optim.lr: set algorithm.lr instead."),
        ({"actor": {"+optim": {"lr": 1}}}, "actor.+optim.lr: set algorithm.lr instead."),
        ({"actor.optim.lr.peak": 1}, "actor.optim.lr.peak: set algorithm.lr instead."),
        ({"train-batch": 1}, "train-batch: set batch.episodes instead."),
        ({"--train-batch": 1}, "train-batch: set batch.episodes instead."),
        ({"actor": 1}, "actor: it holds actor.optim.lr (set algorithm.lr instead); write a table"),
        ({"~actor.optim": 1}, "actor.optim: it holds actor.optim.lr (set algorithm.lr instead)"),
    ],
)
def test_owned_keys_are_refused(table, reason):
    with pytest.raises(RecipeError, match=re.escape(f"trainer.verl.{reason}")):
        refuse_native(recipe(table), "verl", OWNED)


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"actor": {"optim": {"eps": 1}}},
        {"actor.optim.lr_ratio": 1},
        {"train": 1},
        {"train_batches": 1},
        {"other.actor.optim.lr": 1},
    ],
)
def test_other_keys_are_free(table):
    refuse_native(recipe(table), "verl", OWNED)


def test_the_keys_of_another_trainer_are_its_own():
    refuse_native(recipe({"train_batch": 1}), "trl", OWNED)


def test_keys_are_as_they_were_written():
    assert native_table(recipe({"a": {"+b-c": 1}}), "verl") == {"a.+b-c": 1}
    assert bare("a.+b-c") == "a.b_c"
    assert parents("a") == []
