"""The overrides, composed and validated by verl's own configuration files."""

from __future__ import annotations

import json
import re

import pytest
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import validate_config

from gem_core.errors import RecipeError
from gem_core.training.recipe import load_recipe, recipe_from_dict
from gem_verl.config import translate
from gem_verl.cpu.local import configuration
from gem_verl.rollout import TaskDataset, read_recipe


def paper(*overrides):
    return load_recipe("guess-the-number-easy", "paper", overrides)


def composed(recipe, model="model"):
    """verl's configuration, which verl itself finds valid."""
    config = configuration(recipe, model, **{"critic.model.path": model})
    validate_config(config, need_reference_policy(config), need_critic(config))
    return config


@pytest.mark.parametrize(("engine", "length"), [("vllm", 12800), ("sglang", 12801)])
def test_the_paper_profile_on_gpus(engine, length):
    config = composed(paper(f"hardware.engine={engine}"))
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    assert rollout.name == engine and rollout.max_model_len == length
    assert (config.trainer.nnodes, config.trainer.n_gpus_per_node) == (1, 8)
    assert config.trainer.device == "cuda" and "address" not in config.ray_kwargs.ray_init
    assert (actor.optim.lr, list(actor.optim.betas)) == (1e-6, [0.9, 0.95])
    assert (actor.ppo_epochs, actor.ppo_mini_batch_size) == (2, 128)
    assert (actor.kl_loss_type, config.algorithm.use_kl_in_reward) == ("low_var_kl", False)
    assert actor.checkpoint.load_contents == ["model", "optimizer", "extra"]
    assert (config.algorithm.adv_estimator, config.algorithm.gamma) == ("gem_rebn", 0.9)
    assert (actor.strategy, actor.use_dynamic_bsz) == ("fsdp2", True)
    assert config.data.max_prompt_length == config.data.max_response_length == 12800
    assert not need_critic(config) and not need_reference_policy(config)
    assert "gem_hf" not in str(config), "the CPU harness leaked into a GPU run"


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_several_nodes_join_a_running_ray_cluster(engine):
    keys = ["hardware.nodes=4", "hardware.gpus_per_node=8", "batch.micro_batch=2"]
    config = composed(paper(*keys, f"hardware.engine={engine}"))
    assert (config.trainer.nnodes, config.trainer.n_gpus_per_node) == (4, 8)
    assert config.ray_kwargs.ray_init.address == "auto"
    assert config.actor_rollout_ref.rollout.name == engine
    assert config.actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu == 2
    assert not config.actor_rollout_ref.actor.use_dynamic_bsz


def test_ppo_has_a_critic_and_kl_a_reference_model(model_dir):
    keys = ["algorithm.estimator=gae", "algorithm.kl_coef=0.01", "algorithm.critic_lr=1e-5"]
    config = composed(paper(*keys), model_dir)
    assert need_critic(config) and need_reference_policy(config)
    assert config.critic.optim.lr == 1e-5 and config.critic.strategy == "fsdp2"
    assert config.actor_rollout_ref.actor.kl_loss_coef == 0.01
    assert config.algorithm.use_kl_in_reward is False


@pytest.mark.parametrize(
    ("aggregation", "mode"),
    [("token", "token-mean"), ("sequence", "seq-mean-token-mean")],
)
def test_loss_aggregation(aggregation, mode):
    config = composed(paper(f"algorithm.loss_aggregation={aggregation}"))
    assert config.actor_rollout_ref.actor.loss_agg_mode == mode


def test_native_keys_come_last():
    recipe = recipe_from_dict(
        paper().to_dict()
        | {"trainer": {"verl": {"actor_rollout_ref.actor.optim.lr": 0.5, "data.seed": 7}}}
    )
    config = composed(recipe)
    assert config.actor_rollout_ref.actor.optim.lr == 0.5 and config.data.seed == 7


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("trainer.use_v1", False),
        ("trainer.v1.trainer_mode", "separate_async"),
        ("trainer.v1.sampler.custom_sampler.path", None),
        ("data.custom_cls.name", "Other"),
        ("~data.custom_cls.path", None),
        ("actor_rollout_ref.rollout.n", 4),
    ],
)
def test_native_keys_that_would_unplug_the_adapter_are_refused_by_name(key, value):
    recipe = recipe_from_dict(paper().to_dict() | {"trainer": {"verl": {key: value}}})
    with pytest.raises(RecipeError, match=rf"trainer\.verl\.{re.escape(key.lstrip('~'))}: "):
        translate(recipe)


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "it's \\'quoted\\'",
        'a "b" \\" c',
        "${oc.env:HOME} $x",
        "back\\slash\\",
        "é\n{x: 1}",
    ],
)
def test_a_recipe_arrives_as_it_was_sent(text):
    recipe = paper("context.template=chat")
    data = recipe.to_dict()
    data["context"]["system"] = text
    recipe = recipe_from_dict(data)
    config = configuration(recipe, f"model {text}".replace("${", "$("))
    assert json.loads(config.data.gem_recipe) == json.loads(json.dumps(recipe.to_dict()))
    assert read_recipe(config.data.gem_recipe) == recipe


def test_the_dataset_is_the_recipes_tasks(tiny):
    recipe = tiny("train.steps=3", "eval.inside_episodes=5")
    data = configuration(recipe, "model").data
    assert len(TaskDataset(data.train_files, data)) == 24
    assert len(TaskDataset(data.val_files, data)) == 5
    assert TaskDataset(data.val_files, data)[2]["data_source"] == "gem:held-out"
    assert [TaskDataset(data.train_files, data)[i]["index"] for i in (0, 23)] == [0, 23]


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["algorithm.kl_in=reward", "algorithm.kl_coef=0.1"], "algorithm.kl_in"),
        (["algorithm.lr_schedule=linear"], "algorithm.lr_schedule"),
        (["hardware.engine=hf"], "hardware.engine"),
        (["hardware.device=cpu"], "hardware.engine"),
        (["hardware.device=cpu", "hardware.engine=hf", "hardware.nodes=2"], "hardware.nodes"),
        (["train.steps=0"], "train.steps"),
    ],
)
def test_what_verl_cannot_honour_is_refused_by_name(overrides, key):
    with pytest.raises(RecipeError, match=key.replace(".", r"\.")):
        translate(paper(*overrides))
