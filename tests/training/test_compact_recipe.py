"""Recipes with ``context.history = "compact"``: what is refused by name, and what others keep."""

from __future__ import annotations

import pytest

from gem_core.episodes.context import Compact
from gem_core.errors import RecipeError
from gem_core.runs.recipe.load import load_recipe, recipe_from_dict
from gem_core.runs.recipe.recipe import EnvConfig, Recipe
from gem_core.runs.tasks import MachineFactory, compact_of
from gem_core.training.warm_start.settings import play_settings

GUESS = "guess-the-number-easy"
ASKS = ["context.history=compact", "context.compact.budget=100"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["context.history=compact"], r"context\.compact\.budget: must be set with"),
        (["context.compact.budget=100"], r"context\.compact\.budget = 100 has no effect here"),
        (["context.compact.trained=false"], r"context\.compact\.trained = False has no effect"),
        ([*ASKS, "context.compact.max_tokens=9"], r"max_tokens: must be at most limits\.max_tok"),
        ([*ASKS, "context.compact.budget=496"], r"budget: plus .* = 512, got 512"),
        ([*ASKS, "context.compact.budget=0"], r"context\.compact\.budget"),
        ([*ASKS, "context.compact.prompt=''"], r"context\.compact\.prompt"),
        (["context.history=compac"], r"context\.history.*compact"),
        (["context.compact.buget=100"], r"buget'.*Did you mean 'context.compact.budget'"),
        ([*ASKS, "context.window=2"], r"context\.window = 2 has no effect"),
    ],
)
def test_what_cannot_be_is_refused_by_name(overrides, message):
    with pytest.raises(RecipeError, match=message):
        load_recipe(GUESS, "tiny", overrides)


def test_the_settings_of_the_machines():
    recipe = load_recipe(GUESS, "tiny", [*ASKS, "context.compact.trained=false"])
    made = compact_of(recipe)
    assert made == Compact(budget=100, max_tokens=8, trained=False)
    assert compact_of(load_recipe(GUESS, "tiny")) is None
    assert recipe_from_dict(recipe.to_dict()) == recipe


def test_without_a_tokenizer_it_is_refused():
    with pytest.raises(RecipeError, match=r'context\.history = "compact" counts tokens'):
        MachineFactory(load_recipe(GUESS, "tiny", ASKS))


def test_recipes_without_it_are_stored_and_cached_as_before():
    recipe = Recipe(name="x", env=[EnvConfig(id="game:Hangman-v0-easy")])
    assert "compact" not in recipe.to_dict()["context"]


@pytest.mark.parametrize("asks", [False, True])
def test_warm_starts_depend_on_it_only_where_it_is_used(asks):
    from gem_core.runs.splits import run_envs

    recipe = load_recipe(GUESS, "tiny", ASKS if asks else [])
    assert ("compact" in play_settings(recipe, run_envs(recipe))["context"]) is asks
