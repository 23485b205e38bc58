"""Recipes: what is wrong is named, what is right merges in a fixed order."""

from __future__ import annotations

import msgspec
import pytest

from gem_core.adapters.native_keys import refuse_keys
from gem_core.errors import GemError, RecipeError
from gem_core.training.recipe import (
    flatten,
    get_key,
    load_recipe,
    merge,
    recipe_from_dict,
    recipe_keys,
    shipped,
)

GUESS = "guess-the-number-easy"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("algorithm.gama=1", "Unknown recipe key 'algorithm.gama'. Did you mean 'algorithm.gamma'"),
        ("algoritm.gamma=1", "Did you mean 'algorithm"),
        ("batch.episode=8", "Did you mean 'batch.episodes'"),
        ("model.tiny.layer=3", "Did you mean 'model.tiny.layers'"),
        ("env=[{idd='x'}]", r"Unknown recipe key 'env\[0\].idd'. Did you mean 'env\[0\].id'"),
        ("algorithm.lr=fast", "algorithm.lr: Expected `float`, got `str`"),
        ("algorithm.kl_in=somewhere", "algorithm.kl_in: Invalid enum value 'somewhere'"),
        ("algorithm.estimator=rebm", "Did you mean 'rebn'"),
        ("context.template=qwen_game", "Did you mean 'qwen3_game'"),
        ("env=[{id='game:GuesTheNumber-v0-easy'}]", "Did you mean 'game:GuessTheNumber-v0-easy'"),
        ("batch.group_size=7", "batch.episodes: 96 is not a multiple of batch.group_size = 7"),
        ("algorithm.minibatches=97", "algorithm.minibatches: must be at least 1 and at most"),
        ("algorithm.estimator=grpo", "batch.group_size: estimator 'grpo'"),
        ("algorithm.gamma=1.5", "algorithm.gamma: must be in"),
        ("algorithm.loss_aggregation=constant", "algorithm.loss_constant: goes with"),
        ("seed=-1", "seed: must be in"),
        ("sampling.temperature=0", "sampling.temperature: must be positive"),
        ("nonsense", "write dotted.key=value"),
        ("env=[]", "env: a recipe needs at least one"),
    ],
)
def test_errors_name_the_key(override, message):
    with pytest.raises(GemError, match=message):
        load_recipe(GUESS, "tiny", [override])


def test_unknown_files_are_guessed(tmp_path):
    with pytest.raises(RecipeError, match="Did you mean 'guess-the-number-easy'"):
        load_recipe("guess-the-numbr-easy")
    with pytest.raises(RecipeError, match=r"No profile 'tinny'. Did you mean 'tiny'"):
        load_recipe(GUESS, "tinny")
    with pytest.raises(RecipeError, match="Cannot read"):
        load_recipe(tmp_path / "absent.toml")
    (tmp_path / "bad.toml").write_text("name = ")
    with pytest.raises(RecipeError, match="not valid TOML"):
        load_recipe(tmp_path / "bad.toml")


def test_later_layers_win(tmp_path):
    (tmp_path / "b.toml").write_text(
        'name="b"\nenv=[{id="game:GuessTheNumber-v0-easy"}]\n'
        "[algorithm]\nlr=1.0\ngamma=0.5\nlam=0.1\n"
        "[profiles.p.algorithm]\nlam=0.3\nlr=0.3\n"
    )
    (tmp_path / "p.toml").write_text("[algorithm]\nlr=0.2\ngamma=0.2\nlam=0.2\n")
    recipe = load_recipe(tmp_path / "b.toml", tmp_path / "p.toml", ["algorithm.lr=0.4"])
    assert (recipe.algorithm.lr, recipe.algorithm.gamma, recipe.algorithm.lam) == (0.4, 0.2, 0.3)
    assert load_recipe(tmp_path / "b.toml").algorithm.lr == 1.0


def test_override_values_are_toml_or_bare_words():
    overrides = ["model.path=org/name", "train.steps=7", "algorithm.betas=[0.8, 0.9]", "name=x y"]
    recipe = load_recipe(GUESS, None, overrides)
    assert recipe.model.path == "org/name" and recipe.train.steps == 7
    assert recipe.algorithm.betas == (0.8, 0.9) and recipe.name == "x y"


def test_merge_replaces_lists_and_merges_tables():
    assert merge({"a": {"x": 1, "y": 2}, "l": [1, 2]}, {"a": {"x": 3}, "l": [9]}) == {
        "a": {"x": 3, "y": 2},
        "l": [9],
    }


@pytest.mark.parametrize("name", sorted(shipped("baselines")))
@pytest.mark.parametrize("profile", [None, *sorted(shipped("profiles"))])
def test_every_shipped_recipe_loads_and_round_trips(name, profile):
    recipe = load_recipe(name, profile)
    assert recipe_from_dict(msgspec.json.decode(msgspec.json.encode(recipe))) == recipe
    keys = recipe_keys()
    for key in recipe.sources:
        assert key in keys, f"sources names {key}, which is no key"


def test_keys_are_complete_and_readable():
    recipe, keys = load_recipe(GUESS), recipe_keys()
    assert len(keys) == len(set(keys)) > 50
    assert {"env", "limits.max_turns", "model.tiny.layers", "algorithm.kl_in"} <= set(keys)
    for key in keys:
        get_key(recipe, key)


def test_refuse_names_key_value_and_reason():
    recipe = load_recipe(GUESS, None, ["algorithm.entropy_coef=0.1"])
    refuse_keys(recipe, "x", {"algorithm.kl_coef": "no reference model"})
    with pytest.raises(RecipeError, match=r"x cannot honour algorithm.entropy_coef = 0.1: no"):
        refuse_keys(recipe, "x", {"algorithm.entropy_coef": "no entropy term"})


def test_tables_become_dotted_keys():
    table = {"a": {"b": {"c": 1}, "d": [1, 2]}, "e": None}
    assert flatten(table) == {"a.b.c": 1, "a.d": [1, 2], "e": None}
