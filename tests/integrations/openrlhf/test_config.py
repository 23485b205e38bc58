"""The recipe as OpenRLHF's own parser reads it."""

from __future__ import annotations

import pytest

from gem_core.errors import RecipeError
from gem_core.training.recipe import load_recipe, shipped
from gem_openrlhf.config import OWNED, translate
from gem_openrlhf.cpu.parse import parse


def parsed(recipe):
    return parse([*translate(recipe), "--train.agent_func_path", "x.py"])


def test_tiny(tiny):
    batch = ("batch.episodes=64", "batch.group_size=4", "batch.micro_batch=8")
    optimizer = ("algorithm.minibatches=2", "algorithm.lr=2e-3", "algorithm.lr_schedule=constant")
    args = parsed(tiny(*batch, *optimizer))
    assert (args.rollout.batch_size, args.rollout.n_samples_per_prompt) == (16, 4)
    assert (args.train.batch_size, args.train.micro_batch_size) == (32, 8)
    assert args.rollout.micro_batch_size == 8 and args.data.max_len == 512
    assert args.actor.adam.lr == 2e-3 and args.actor.adam.betas == [0.9, 0.95]
    assert args.actor.lr_scheduler == "constant_with_warmup"
    assert args.algo.advantage.estimator == "reinforce"
    assert args.critic.model_name_or_path is None and args.algo.kl.init_coef == 0
    assert args.algo.advantage.is_correction_level == "off"


@pytest.mark.parametrize("baseline", sorted(shipped("baselines")))
def test_the_paper_profile_parses(baseline):
    args = parsed(load_recipe(baseline, "paper"))
    assert args.train.colocate_all and args.vllm.enable_sleep and args.ds.enable_sleep
    assert args.vllm.num_engines == args.actor.num_gpus_per_node == 8
    assert args.vllm.sync_backend == "nccl" and args.ds.param_dtype == "bf16"
    assert args.actor.gradient_checkpointing_enable
    assert args.train.micro_batch_size * 8 <= 128


def test_async_splits_the_gpus_and_corrects_the_loss():
    recipe = load_recipe(
        "guess-the-number-easy", "paper", ["trainer.openrlhf.train.async_enable=true"]
    )
    args = parsed(recipe)
    assert (args.actor.num_gpus_per_node, args.vllm.num_engines) == (4, 4)
    assert args.train.async_enable and not args.vllm.enable_sleep
    assert args.algo.advantage.is_correction_level == "token"


def test_gae_brings_the_critic(tiny):
    args = parsed(tiny("algorithm.estimator=gae", "algorithm.critic_lr=0.5"))
    assert args.critic.model_name_or_path == "tiny" and args.critic.adam.lr == 0.5


@pytest.mark.parametrize(
    ("where", "use_loss", "kind"), [("loss", True, "k3"), ("reward", False, "k1")]
)
def test_kl(tiny, where, use_loss, kind):
    args = parsed(tiny("algorithm.kl_coef=0.1", f"algorithm.kl_in={where}"))
    assert (args.algo.kl.init_coef, args.algo.kl.use_loss) == (0.1, use_loss)
    assert args.algo.kl.estimator == kind


@pytest.mark.parametrize("steps", [1, 3, 7, 20])
def test_warmup_is_exactly_what_was_asked(tiny, steps):
    import math

    recipe = tiny(f"algorithm.warmup_steps={steps}", "train.steps=13", "algorithm.epochs=3")
    assert math.ceil(39 * parsed(recipe).actor.lr_warmup_ratio) == steps


def test_native_flags_win_and_may_be_nested(tiny):
    args = parsed(tiny("trainer.openrlhf.ds.zero_stage=3", "trainer.openrlhf.actor.adam.eps=1e-5"))
    assert args.ds.zero_stage == 3 and args.actor.adam.eps == 1e-5
    args = parsed(tiny("trainer.openrlhf.vllm.num_engines=2"))
    assert args.vllm.num_engines == 2


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_schedules(tiny, schedule):
    assert parsed(tiny(f"algorithm.lr_schedule={schedule}")).actor.lr_scheduler == schedule


@pytest.mark.parametrize("flag", sorted(OWNED))
def test_native_flags_without_effect_are_refused(tiny, flag):
    with pytest.raises(RecipeError, match=flag.replace(".", r"\.")):
        translate(tiny(f"trainer.openrlhf.{flag}=1"))


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("context.history=last", "context.history"),
        ("hardware.engine=sglang", "hardware.engine"),
        ("hardware.device=gpu", "model.dtype"),
        ("batch.micro_batch=7", "batch.micro_batch"),
        ("algorithm.minibatches=5", "algorithm.minibatches"),
    ],
)
def test_impossible_values_are_refused_by_name(tiny, override, key):
    with pytest.raises(RecipeError, match=key.replace(".", r"\.")):
        translate(tiny(override))


def test_async_needs_two_gpus():
    overrides = ["trainer.openrlhf.train.async_enable=true", "hardware.gpus_per_node=1"]
    with pytest.raises(RecipeError, match="gpus_per_node"):
        translate(load_recipe("guess-the-number-easy", "paper", overrides))


def test_unknown_native_flags_are_refused_by_the_parser(tiny):
    with pytest.raises(SystemExit):
        parsed(tiny("trainer.openrlhf.no.such=1"))
