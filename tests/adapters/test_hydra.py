"""The text of overrides; the tests of the trainers that use hydra read it back."""

from __future__ import annotations

import pytest

from gem_adapters.hydra import followers, override, refuse_unknown
from gem_core.errors import RecipeError
from gem_core.runs.recipe.recipe import Recipe


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "k=null"),
        (True, "k=true"),
        ([0.9, 0.95], "k=[0.9, 0.95]"),
        ("a b", "k='a b'"),
        ("it's", r"k='it\'s'"),
        ("a\\b", r"k='a\b'"),
        ("end\\", r"k='end\\'"),
    ],
)
def test_values(value, text):
    assert override("k", value) == text


def test_a_deleted_key_has_no_value():
    assert override("~a.b", None) == "~a.b"


CONFIGURATION = {
    "actor.lr": 1e-6,
    "actor.decay": 0.1,
    "critic.lr": "${actor.lr}",
    "critic.best.lr": "${critic.lr}",
    "ref.lr": "${oc.select:actor.lr,0.1}",
    "actor.twin": "${.lr}",
    "critic.decay": "${actor.decay}",
    "critic.name": "${actor.lr} of ${actor.decay}",
}


def test_followers_take_the_value_of_an_owned_key():
    reason = "set algorithm.lr instead"
    decided = followers({"actor.lr": reason}, CONFIGURATION)
    expected = ("critic.lr", "critic.best.lr", "ref.lr", "actor.twin")
    assert decided == dict.fromkeys(expected, reason)


def recipe(key):
    return Recipe(name="x", env=[], trainer={"verl": {key: 1}})


@pytest.mark.parametrize("key", ["actor.lr", "+actor.own", "++a.b", "~actor", "hydra.run.dir"])
def test_known_and_added_keys_pass(key):
    refuse_unknown(recipe(key), "verl", CONFIGURATION)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("actor.lrr", "no such key. Did you mean 'actor.lr'"),
        ("actor", "no such key"),
        ("~actr", "no such key"),
        ("+optim@actor.optim", "group of configuration files"),
        ("actor/optim", "group of configuration files"),
    ],
)
def test_unknown_keys_and_groups_are_refused(key, message):
    with pytest.raises(RecipeError) as error:
        refuse_unknown(recipe(key), "verl", CONFIGURATION)
    assert str(error.value).startswith(f"trainer.verl.{key}: ") and message in str(error.value)
