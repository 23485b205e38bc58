"""Recipes through RL2's own configuration files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from gem_core.errors import RecipeError
from gem_core.runs.recipe.load import load_recipe, recipe_from_dict
from gem_rl2.config import native_config, translate


def composed(recipe, **settings):
    """What RL2 would read: its own ``ppo.yaml`` with our overrides."""
    return native_config(recipe, settings)


def test_tiny(tiny):
    keys = ["algorithm.kl_coef=0.1", "algorithm.warmup_steps=3", "train.steps=10"]
    keys += ["algorithm.lr=1e-3", "algorithm.lr_schedule=constant"]
    config = composed(tiny(*keys))
    assert config.train_data.prompts_per_rollout == 96
    assert config.trainer.n_epochs == 10
    assert config.actor.lr == 1e-3
    assert list(config.actor.betas) == [0.9, 0.95]
    assert config.actor.kl.coef == 0.1
    assert config.actor.kl.type == "loss"
    assert config.actor.scheduler == "constant_with_warmup"
    assert int(config.actor.warmup_ratio * 10) == 3
    assert config.rollout.dynamic_filtering is False
    assert config.adv.estimator == "rebn"
    assert config.adv.gamma == 0.9


@pytest.mark.parametrize(("warmup", "steps"), [(3, 10), (29, 100), (7, 300), (1, 3)])
@pytest.mark.parametrize("updates", [1, 2, 4])
def test_warmup_survives_rl2s_rounding(tiny, warmup, steps, updates):
    recipe = tiny(f"algorithm.warmup_steps={warmup}", f"train.steps={steps}")
    assert int(composed(recipe).actor.warmup_ratio * steps * updates) == warmup * updates


def test_paper_profile_on_gpus():
    overrides = ["hardware.engine=sglang", "hardware.gpus_per_node=8", "algorithm.estimator=gae"]
    config = composed(load_recipe("guess-the-number-easy", "paper", overrides))
    assert config.actor.max_length_per_device == 12800
    assert config.actor.gradient_checkpointing
    assert config.actor.epochs == 2
    assert config.rollout.server_args.dtype == "bfloat16"
    assert config.rollout.train_sampling_params.max_new_tokens == 4096
    assert config.rollout.test_sampling_params.temperature == 0.6
    assert config.critic.max_length_per_device == config.actor.max_length_per_device


def test_float32_is_refused_on_a_gpu():
    recipe = load_recipe("guess-the-number-easy", "small", ["model.dtype=float32"])
    with pytest.raises(RecipeError, match=r"model\.dtype.*flash-attention.*use 'bfloat16'"):
        translate(recipe)


def test_the_critic_follows_the_actor(tiny):
    keys = ["algorithm.lr_schedule=cosine", "algorithm.betas=[0.8, 0.9]", "algorithm.epochs=3"]
    config = composed(tiny(*keys, "algorithm.estimator=gae", "algorithm.critic_lr=0.25"))
    assert config.critic.scheduler == "cosine"
    assert list(config.critic.betas) == [0.8, 0.9]
    assert config.critic.epochs == 3
    assert config.critic.lr == 0.25


def test_an_estimator_by_place_survives_the_override_grammar(tiny, monkeypatch):
    monkeypatch.setenv("GEM_CORE_TRUST", "1")
    name = "gem_core.advantages.estimators:rebn"
    assert composed(tiny(f'algorithm.estimator="{name}"')).adv.estimator == name


@pytest.mark.parametrize("estimator", ["rebn", "gae"])
@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_the_names_of_the_newer_api(tiny, estimator, schedule):
    keys = [f"algorithm.estimator={estimator}", f"algorithm.lr_schedule={schedule}"]
    keys += ["algorithm.epochs=1", "algorithm.lr=1e-3", "train.steps=60"]
    settings = {"rollout.train.path": "/x y/rows.jsonl", "actor.model_name": "m"}
    overrides = translate(tiny(*keys), newer=True, settings=settings)
    with initialize_config_dir(str(Path(__file__).parent), version_base=None):
        config = compose("newer_ppo", overrides)
    assert config.rollout.train.prompts_per_rollout == 96
    assert config.rollout.train.path == "/x y/rows.jsonl"
    assert config.rollout.train.dynamic_filtering is False
    assert config.rollout.test.prompts_per_rollout == 64
    assert config.trainer.total_steps == 60
    assert config.actor.optimizer.lr == 1e-3
    assert list(config.actor.optimizer.betas) == [0.9, 0.95]
    assert config.actor.dtype == "float32"
    assert "min_lr" not in config.actor.scheduler
    assert config.critic.model_name == "m"
    assert config.critic.optimizer.lr == 1e-3
    assert list(config.critic.optimizer.betas) == [0.9, 0.95]
    assert config.critic.dtype == "float32"


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["algorithm.clip_high=0.28"], "algorithm.clip_high"),
        (["hardware.engine=vllm"], "hardware.engine"),
        (["hardware.nodes=2"], "hardware.nodes"),
        (["trainer.rl2.actor.tp_size=2", "hardware.gpus_per_node=2"], "trainer.rl2.actor.tp_size"),
        (["batch.max_tokens_per_device=8"], "batch.max_tokens_per_device"),
    ],
)
def test_refusals_name_the_key(tiny, overrides, key):
    with pytest.raises(RecipeError, match=key.replace(".", r"\.")):
        translate(tiny(*overrides))


def test_a_prefix_of_hydra_hides_no_owned_key(tiny):
    data = tiny("hardware.gpus_per_node=2").to_dict()
    data["trainer"] = {"rl2": {"++actor.tp_size": 2}}
    with pytest.raises(RecipeError, match=r"trainer\.rl2\.actor\.tp_size"):
        translate(recipe_from_dict(data))


def test_gpus_that_share_layers_or_sequences_are_those_of_the_recipe(tiny):
    keys = ["hardware.gpus_per_node=8", "hardware.tensor_parallel=2"]
    config = native_config(tiny(*keys, "hardware.sequence_parallel=2"), {})
    for worker in (config.actor, config.ref_actor, config.critic):
        assert (worker.tp_size, worker.sp_size, worker.ddp_size) == (2, 2, 1)


def test_the_length_must_be_known():
    recipe = load_recipe("guess-the-number-easy", None, ["hardware.engine=sglang"])
    with pytest.raises(RecipeError, match=r"limits\.max_context_tokens"):
        translate(recipe)


def test_several_passes_are_refused_in_the_newer_api(tiny):
    with pytest.raises(RecipeError, match=r"algorithm\.epochs"):
        translate(tiny("algorithm.epochs=2"), newer=True)
    with pytest.raises(RecipeError, match=r"train\.save_minutes"):
        translate(tiny("train.save_minutes=5", "algorithm.epochs=1"), newer=True)
    for minutes in (0, 30):
        translate(tiny(f"train.save_minutes={minutes}", "algorithm.epochs=1"), newer=True)


@pytest.mark.parametrize("text", ["a b", "it's", "a\\b", "end\\", "x\\'y", "k=[1,2]", "{a: b}"])
def test_text_survives_the_override_grammar(tiny, text):
    assert composed(tiny(), **{"actor.model_name": text}).actor.model_name == text
