"""Training with another attention than flash-attention, for a machine without flash-attn."""

from __future__ import annotations

import pytest
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config

from gem_core.errors import RecipeError
from gem_core.runs.recipe.load import load_recipe, recipe_from_dict
from gem_verl.config import translate
from gem_verl.cpu.local import configuration
from gem_verl.values import ATTENTION

FLOAT32 = "model.dtype=float32"
SDPA = f"trainer.verl.+{ATTENTION}=sdpa"
MODEL = "actor_rollout_ref.model"


def small(*overrides):
    return load_recipe("guess-the-number-easy", "small", overrides)


def model_of(recipe, model):
    """The configuration of verl's policy, which verl itself finds valid."""
    config = configuration(recipe, model)
    validate_config(config, need_reference_policy(config), need_critic(config))
    return config.actor_rollout_ref.model


def test_flash_attention_is_verls_own_choice():
    model = model_of(small(), "model")
    assert model.use_remove_padding and "attn_implementation" not in model.override_config


@pytest.mark.parametrize("prefix", ["+", "++"])
def test_another_attention_reaches_the_model_and_rows_are_padded(prefix, model_dir):
    model = model_of(small(f"trainer.verl.{prefix}{ATTENTION}=sdpa"), model_dir)
    assert not model.use_remove_padding
    assert omega_conf_to_dataclass(model).hf_config._attn_implementation == "sdpa"


def test_float32_needs_another_attention():
    with pytest.raises(RecipeError, match=r"model\.dtype.*flash-attention has no float32"):
        translate(small(FLOAT32))
    words = translate(small(FLOAT32, SDPA))
    assert "actor_rollout_ref.actor.fsdp_config.dtype='float32'" in words


def test_rows_may_stay_packed():
    key = f"trainer.verl.{MODEL}.use_remove_padding=true"
    assert model_of(small(SDPA, key), "model").use_remove_padding


def test_a_newer_flash_attention_is_one():
    model = model_of(small(SDPA.replace("sdpa", "flash_attention_3"), "hardware.gpus_per_node=2",
                           "hardware.sequence_parallel=2"), "model")  # fmt: skip
    assert model.use_remove_padding


@pytest.mark.parametrize(
    ("override", "why"),
    [
        ("algorithm.estimator=gae", "algorithm.estimator = 'gae': verl loads a critic with flash"),
        ("hardware.sequence_parallel=2", "hardware.sequence_parallel = 2: verl's needs packed"),
    ],
)
def test_what_verl_does_by_flash_attention_alone_is_refused(override, why):
    recipe = small(SDPA, override, "hardware.gpus_per_node=2")
    with pytest.raises(RecipeError, match=why):
        translate(recipe)
    translate(small(override, "hardware.gpus_per_node=2"))


def test_the_rows_of_a_padded_pass_are_to_be_said():
    data = small(SDPA).to_dict()
    del data["batch"]["micro_batch"]
    with pytest.raises(RecipeError, match=r"batch\.micro_batch = None: .* set the rows"):
        translate(recipe_from_dict(data))
