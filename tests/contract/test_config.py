"""Every recipe key is translated, applied by the adapter, refused by name, or the core's own."""

from __future__ import annotations

from typing import Literal, get_args, get_origin

import msgspec
import pytest

from gem_core.adapters.native_keys import core_keys
from gem_core.errors import RecipeError
from gem_core.training.recipe import Recipe, get_key, merge, recipe_from_dict, recipe_keys

# A change that needs a second key to be valid: key -> the changes that make it a fair test.
TOGETHER = {
    "algorithm.loss_aggregation": {"algorithm.loss_aggregation": "sequence"},
    "algorithm.loss_constant": {
        "algorithm.loss_aggregation": "constant",
        "algorithm.loss_constant": 99,
    },
    "algorithm.kl_in": {"algorithm.kl_in": "reward", "algorithm.kl_coef": 0.1},
    "algorithm.estimator": {
        "algorithm.estimator": "grpo",
        "algorithm.gamma": 1.0,
        "batch.group_size": 4,
    },
    "algorithm.options": {"algorithm.options": {"eps": 1e-3}},
    "algorithm.lam": {"algorithm.lam": 0.5, "algorithm.estimator": "gae"},
    "algorithm.rollout_correction": {
        "algorithm.rollout_correction": "tis",
        "hardware.device": "gpu",
    },
    "algorithm.rollout_cap": {
        "algorithm.rollout_cap": 3.0,
        "algorithm.rollout_correction": "tis",
    },
    "algorithm.critic_lr": {"algorithm.critic_lr": 0.25, "algorithm.estimator": "gae"},
    "algorithm.value_clip": {"algorithm.value_clip": 0.3, "algorithm.estimator": "gae"},
    "batch.group_size": {"batch.group_size": 4},
    "batch.episodes": {"batch.episodes": 32},
    "batch.micro_batch": {"batch.micro_batch": 8},
    "algorithm.minibatches": {"algorithm.minibatches": 2},
    "hardware.engine": {"hardware.engine": "vllm", "hardware.device": "gpu"},
    "hardware.nodes": {"hardware.nodes": 2, "hardware.device": "gpu"},
    "hardware.gpus_per_node": {"hardware.gpus_per_node": 4, "hardware.device": "gpu"},
    "hardware.device": {"hardware.device": "gpu", "hardware.engine": "default"},
    "model.gradient_checkpointing": {"model.gradient_checkpointing": True},
    "hardware.engine_tensor_parallel": {
        "hardware.engine_tensor_parallel": 2,
        "hardware.gpus_per_node": 4,
        "hardware.device": "gpu",
        "hardware.engine": "default",
    },
    "hardware.tensor_parallel": {
        "hardware.tensor_parallel": 2,
        "hardware.gpus_per_node": 4,
        "hardware.device": "gpu",
        "hardware.engine": "default",
    },
    "hardware.sequence_parallel": {
        "hardware.sequence_parallel": 2,
        "hardware.gpus_per_node": 4,
        "hardware.device": "gpu",
        "hardware.engine": "default",
    },
    "hardware.sharding": {
        "hardware.sharding": "full",
        "hardware.device": "gpu",
        "hardware.engine": "default",
    },
    "hardware.offload": {
        "hardware.offload": "all",
        "hardware.device": "gpu",
        "hardware.engine": "default",
    },
    "model.lora.rank": {"model.lora.rank": 8},
    "model.lora.alpha": {"model.lora.alpha": 8.0, "model.lora.rank": 8},
    "model.lora.targets": {"model.lora.targets": ["q_proj"], "model.lora.rank": 8},
    "batch.max_tokens_per_device": {"batch.max_tokens_per_device": 4096},
    "model.path": {"model.path": "some/model"},
    "model.revision": {"model.revision": "v1"},
    "sampling.top_k": {"sampling.top_k": 7},
    "sampling.top_p": {"sampling.top_p": 0.5},
    "eval.inside_episodes": {"eval.every": 5, "eval.inside_episodes": 7},
}


def field_type(key):
    table = Recipe
    for part in key.split("."):
        (field,) = [f for f in msgspec.structs.fields(table) if f.name == part]
        table = field.type
    return table


def other_value(key, value):
    kind = field_type(key)
    if get_origin(kind) is Literal:
        return next(choice for choice in get_args(kind) if choice != value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value / 2 if value else 0.5
    if isinstance(value, (tuple, list)):
        return [item / 2 for item in value]
    raise AssertionError(f"no other value for {key}: add it to TOGETHER")


def change(recipe, values):
    data = recipe.to_dict()
    for key, value in values.items():
        for part in reversed(key.split(".")):
            value = {part: value}
        data = merge(data, value)
    return recipe_from_dict(data)


def changed(recipe, key):
    return change(recipe, TOGETHER.get(key) or {key: other_value(key, get_key(recipe, key))})


def test_every_key_is_accounted_for(config):
    applied = getattr(config, "APPLIED", frozenset())
    known = config.TRANSLATED | applied | config.REFUSED.keys() | core_keys()
    assert known == set(recipe_keys()), known ^ set(recipe_keys())
    assert not config.TRANSLATED & config.REFUSED.keys()
    assert not applied & config.REFUSED.keys()


def test_translated_keys_change_the_native_configuration(config, tiny):
    recipe = tiny()
    silent = []
    for key in sorted(config.TRANSLATED):
        moved = changed(recipe, key)
        together = {k: v for k, v in TOGETHER.get(key, {}).items() if k != key}
        base = change(recipe, together) if together and _valid(recipe, together) else recipe
        try:
            if config.translate(moved) == config.translate(base):
                silent.append(key)
        except RecipeError as error:
            # Refusing one value by name is honest too.
            assert any(k in str(error) for k in [key, *together]), (key, error)
    assert silent == []


def _valid(recipe, values):
    try:
        change(recipe, values)
    except RecipeError:
        return False
    return True


def test_refused_keys_are_refused_by_name(config, tiny):
    for key in config.REFUSED:
        with pytest.raises(RecipeError) as raised:
            config.translate(changed(tiny(), key))
        keys = {key, *TOGETHER.get(key, ())} & config.REFUSED.keys()
        assert any(k in str(raised.value) for k in keys), key


def test_native_keys_pass_through_and_win(config, tiny, trainer_name):
    before = config.translate(tiny())
    assert before == config.translate(tiny()), "translate() is not a pure function"
    other = change(tiny(), {f"trainer.{name}": {"x": 1} for name in ("nobody",)})
    assert config.translate(other) == before, "another trainer's native keys leaked in"
