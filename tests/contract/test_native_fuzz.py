"""Random recipes and native keys, seen in each trainer's own configuration.

``native/native_<trainer>.py`` says where a value is found there, without the adapter's tables.
"""

from __future__ import annotations

import importlib.util
import random
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from gem_adapters.native_keys import bare
from gem_compare.grid import ALGORITHMS, Cell
from gem_core.errors import GemError, RecipeError
from gem_core.runs.recipe.files import shipped
from gem_core.runs.recipe.load import load_recipe, recipe_from_dict
from gem_core.runs.recipe.recipe import Recipe, get_key

HERE = Path(__file__).parent
RECIPES = 400
SPECIAL = (
    ("train.save_every=0",),
    ("eval.every=7",),
    ("eval.temperature=0",),
    ("sampling.top_k=5",),
    ("sampling.top_k=-1",),
    ("model.dtype=bfloat16",),
    ("model.gradient_checkpointing=true",),
    ("algorithm.epochs=2", "algorithm.minibatches=4", "algorithm.warmup_steps=3"),
    ("algorithm.critic_lr=0.25", "algorithm.estimator=gae"),
    ("algorithm.kl_coef=0.1", "algorithm.kl_in=reward"),
    ("algorithm.kl_coef=0.1", "algorithm.kl_in=loss"),
    ("algorithm.clip_low=0.1", "algorithm.clip_high=0.3"),
    ("algorithm.clip_low=0.1", "algorithm.clip_high=0.1"),
    ("algorithm.loss_aggregation=constant", "algorithm.loss_constant=99"),
    ("algorithm.loss_aggregation=sequence",),
    ("algorithm.lr_schedule=linear", "algorithm.warmup_steps=1"),
    ("algorithm.entropy_coef=0.01",),
    ("batch.group_size=4", "algorithm.estimator=grpo", "algorithm.options.std=false"),
    ("batch.micro_batch=8",),
    ("hardware.gpus_per_node=4",),
    ("hardware.nodes=2",),
    ("model.lora.rank=8", "model.lora.alpha=16"),
    ("model.lora.rank=8", "model.lora.targets=['q_proj', 'v_proj']"),
    ("batch.max_tokens_per_device=20000",),
    ("hardware.sharding=none",),
    ("hardware.sharding=optimizer",),
    ("hardware.sharding=full",),
    ("hardware.offload=optimizer",),
    ("hardware.engine_tensor_parallel=2", "hardware.gpus_per_node=4"),
)
"""Overrides that random recipes seldom have, and whose values mean something else than a size."""
SPELLINGS = ("{}", "+{}", "++{}", "~{}", "--{}")


def _load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FUZZ = _load(HERE.parent / "training" / "test_recipe_fuzz.py")


@pytest.fixture(scope="module")
def native(trainer_name):
    """The module that reads the trainer's configuration."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HERE / "native"))
        return import_module(f"native_{trainer_name}")


@pytest.fixture(scope="module", params=["tiny", "paper"])
def accepted(request, config):
    """The random recipes of a profile that load and that the trainer accepts, by number."""
    recipes = {}
    for number in range(RECIPES):
        given = FUZZ.drawn(number)
        keys = [f"{key}={FUZZ.toml(value)}" for key, value in given.items()]
        try:
            recipe = load_recipe("guess-the-number-easy", request.param, keys)
        except GemError:
            continue  # tests/training/test_recipe_fuzz.py
        try:
            config.translate(recipe)
        except RecipeError as error:
            assert any(FUZZ.named(key, str(error)) for key in given), (number, given, str(error))
            continue
        recipes[number] = recipe
    return recipes


def same(expected, value):
    """Whether a native value is the recipe's; tuples and lists are alike, 1 and True are not."""
    if callable(expected):
        return expected(value)
    if isinstance(expected, (tuple, list)):
        return len(expected) == len(value) and all(map(same, expected, value))
    return expected == value and isinstance(expected, bool) == isinstance(value, bool)


def check(native, recipe, keys=None):
    """Compare the values of ``keys``, by default of all in the table, with the configuration."""
    configuration = native.configuration(recipe)
    for key in keys or native.EXPECTED:
        for path, expected in native.EXPECTED[key](recipe).items():
            value = native.value(configuration, path)
            shown = "" if callable(expected) else expected
            assert same(expected, value), (key, get_key(recipe, key), path, value, shown)
    return configuration


def test_the_table_has_every_translated_key(native, config):
    assert native.EXPECTED.keys() >= config.TRANSLATED


def test_enough_recipes_are_accepted(accepted):
    assert len(accepted) > RECIPES / 8


def test_accepted_recipes_have_their_values_in_the_native_configuration(native, accepted):
    for recipe in accepted.values():
        check(native, recipe)


@pytest.mark.parametrize("profile", ["tiny", "paper"])
@pytest.mark.parametrize("overrides", SPECIAL, ids=" ".join)
def test_special_values_are_refused_by_name_or_seen(native, config, profile, overrides):
    recipe = load_recipe("guess-the-number-easy", profile, overrides)
    try:
        config.translate(recipe)
    except RecipeError as error:
        assert any(override.partition("=")[0] in str(error) for override in overrides)
        return
    check(native, recipe)


def test_accepted_recipes_leave_refused_keys_alone(config, accepted):
    defaults = Recipe(name="", env=[])
    for recipe in accepted.values():
        for key in config.REFUSED:
            assert get_key(recipe, key) == get_key(defaults, key)


def with_native(trainer, table, recipe=None):
    """A recipe with ``table`` as ``[trainer.<name>]``."""
    tables = tiny() if recipe is None else recipe.to_dict()
    return recipe_from_dict(tables | {"trainer": {trainer: table}})


@cache
def tiny():
    """The tables of the recipe that most native keys are tried with."""
    return load_recipe("guess-the-number-easy", "tiny").to_dict()


def tables(key):
    """``key`` as a user may write it: dotted, as nested tables, and as a part of both."""
    first, _, rest = key.partition(".")
    yield lambda value: {key: value}
    if rest:
        yield lambda value: {first: {rest: value}}


def test_native_keys_that_the_recipe_decides_are_refused_by_name(config, trainer_name):
    rng = random.Random(0)
    for key, reason in config.NATIVE_OWNED.items():
        for table in tables(key):
            spelled = rng.choice(SPELLINGS).format(key)
            for given in (table(1), {spelled: 1}, {key.replace("_", "-"): 1}, {f"{key}.x": 1}):
                with pytest.raises(RecipeError) as error:
                    config.translate(with_native(trainer_name, given))
                assert str(error.value).startswith(f"trainer.{trainer_name}.")
                assert reason in str(error.value), (given, str(error.value))


def test_a_value_in_place_of_a_table_that_holds_owned_keys_is_refused(
    config, trainer_name, monkeypatch
):
    monkeypatch.setenv("GEM_CORE_TRUST", "1")  # a text is refused as such without it
    holding = {bare(key).rpartition(".")[0] for key in config.NATIVE_OWNED} - {""}
    for table in sorted(holding - config.NATIVE_OWNED.keys()):
        with pytest.raises(RecipeError, match=r"write a table|set |the adapter needs"):
            config.translate(with_native(trainer_name, {table: "x"}))


def test_native_keys_that_are_free_are_seen_and_change_no_other(
    native, config, accepted, trainer_name
):
    rng = random.Random(0)
    for number in rng.sample(sorted(accepted), 20):
        key, value = rng.choice(sorted(native.FREE.items()))
        recipe = with_native(trainer_name, {key: value}, accepted[number])
        assert same(value, native.value(check(native, recipe), key)), key


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_cell_of_the_suite_is_accepted(native, trainer_name, algorithm):
    """The baselines with every profile, in the trainer's own configuration.

    What an estimator needs depends on its own keys alone: the others have a CPU and a GPU profile.
    """
    for profile in shipped("profiles") if algorithm == "rebn" else ("tiny", "paper"):
        for baseline in shipped("baselines"):
            check(native, Cell(baseline, trainer_name, algorithm, 0).recipe(profile))


def test_fast_compositions_are_those_of_hydra(native, config, accepted):
    """Where a trainer has a short cut to its configuration, it is checked against the long way."""
    if not hasattr(native, "compose_native"):
        return
    for number in sorted(accepted)[:3]:
        overrides = config.translate(accepted[number])
        assert native.configuration(accepted[number]) == native.compose_native(overrides)
