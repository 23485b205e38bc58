"""RL2's own keys in ``[trainer.rl2]``: which pass, which the recipe or the adapter decides."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace
from omegaconf import OmegaConf

from gem_adapters.hydra import override
from gem_core.errors import RecipeError
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.files import flatten
from gem_core.runs.recipe.recipe import recipe_keys
from gem_rl2.config import (
    NATIVE_DEFAULTS,
    NATIVE_OWNED,
    native_config,
    native_owned,
    settings_of,
    translate,
)
from gem_rl2.key_table import NATIVE_FREE, TABLE
from gem_rl2.native import compose_native, native_keys


@pytest.fixture
def with_native(tiny):
    """``with_native({key: value})``: the tiny recipe with native keys, one pass over a batch."""
    recipe = tiny("algorithm.epochs=1")
    return lambda table: replace(recipe, trainer={"rl2": table})


def bare_names(overrides):
    """The keys of hydra overrides, without ``+`` and ``~``."""
    return {text.partition("=")[0].lstrip("+~") for text in overrides}


@pytest.mark.parametrize("newer", [False, True])
@pytest.mark.parametrize("prefix", ["", "+", "++", "~"])
def test_every_owned_key_is_refused_by_name(with_native, newer, prefix):
    for key, reason in native_owned(newer).items():
        expected = re.escape(f"trainer.rl2.{key}: {reason}")
        with pytest.raises(RecipeError, match=expected):
            translate(with_native({f"{prefix}{key}": 1}), newer=newer)


@pytest.mark.parametrize("newer", [False, True])
def test_every_translated_key_is_owned_and_its_recipe_key_named(tiny, newer):
    owned = native_owned(newer)
    overrides = translate(tiny("algorithm.epochs=1"), newer=newer)
    assert bare_names(overrides) <= owned.keys() | NATIVE_DEFAULTS.keys()
    named = {
        key
        for reason in owned.values()
        if reason.startswith("set ")
        for key in reason.removesuffix(" instead").split()[1::2]
    }
    assert {key for row in TABLE.of("copied", "computed") for key in row.keys} <= named
    assert named - {"--run"} <= set(recipe_keys())


def test_what_belongs_to_a_run_is_owned(tiny, tmp_path):
    run = RunDir.create(tmp_path / "run", tiny(), "rl2")
    assert settings_of(run).keys() <= NATIVE_OWNED.keys()
    # What newer/trainer.py adds; it cannot be imported without the newer source.
    added = {"rollout.train.path", "rollout.test.path", "rollout.env_path"}
    assert settings_of(run).keys() | added <= native_owned(True).keys()


def test_every_key_that_follows_an_owned_one_is_owned():
    """Hydra itself is asked: a mark in each owned key must not show up under another one."""
    known = native_keys().keys()
    marks = [override(key, f"mark of {key}") for key in sorted(NATIVE_OWNED.keys() & known)]
    direct = [text for text in marks if "critic" not in text or "critic.lr" in text]
    config = flatten(OmegaConf.to_container(compose_native(direct), resolve=True))
    marked = {key for key, value in config.items() if str(value).startswith("mark of")}
    assert marked <= NATIVE_OWNED.keys() | NATIVE_FREE
    assert {"critic.scheduler", "ref_actor.temperature", "rollout.responses_per_prompt"} <= marked


def test_other_keys_are_passed_through(with_native):
    actor = {"freeze_steps": 2, "kl": {"loss_estimator": "k2"}}
    config = native_config(with_native({"actor": actor, "trainer.use_wandb": True}), {})
    assert config.actor.freeze_steps == 2
    assert config.actor.kl.loss_estimator == "k2"
    assert config.trainer.use_wandb is True


def test_a_key_of_the_users_own_is_added_with_a_plus(with_native):
    table = {"+rollout.train_sampling_params.min_p": 0.1}
    assert native_config(with_native(table), {}).rollout.train_sampling_params.min_p == 0.1


@pytest.mark.parametrize("name", sorted(NATIVE_FREE))
def test_budgets_of_inference_may_be_set(with_native, name):
    config = native_config(with_native({name: 4096}), {})
    assert OmegaConf.select(config, name) == 4096


@pytest.mark.parametrize(
    ("key", "meant"),
    [("actor.tis_coeff", "actor.tis_coef"), ("critic.clipp", "critic.clip"), ("~actor.tis", "")],
)
def test_an_unknown_key_is_an_error_that_guesses_what_was_meant(with_native, key, meant):
    with pytest.raises(RecipeError, match=re.escape(f"trainer.rl2.{key}: ")) as error:
        translate(with_native({key: 1}))
    assert meant in str(error.value)


def test_a_table_is_not_a_key(with_native):
    with pytest.raises(RecipeError, match=r"trainer\.rl2\.actor: "):
        translate(with_native({"actor": 3}))
