"""A recipe as Oat's arguments, through Oat's own parser."""

from __future__ import annotations

import math

import pytest
import torch
from oat.algorithms.ppo import PPOArgs

from gem_core.errors import RecipeError
from gem_core.runs.recipe.load import load_recipe, recipe_from_dict
from gem_core.runs.recipe.recipe import recipe_keys
from gem_oat import config
from gem_oat.native import argument_names
from gem_oat.values import REAL_VARIABLE

GPU = ["hardware.device=gpu", "hardware.engine=default"]


@pytest.fixture
def gpus(monkeypatch):
    """Oat's validation asks how many there are."""
    return lambda count: monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


def test_the_tiny_profile_parses(recipe):
    args = config.arguments(recipe("batch.micro_batch=4", "algorithm.minibatches=2"))
    assert args.algo.name == "PPO" and args.critic_type == "drgrpo"
    assert (args.bf16, args.flash_attn, args.use_fused_lm_head) == (False, False, False)
    assert args.cliprange == 0.2 and args.tis_c is None and args.num_samples == 1
    assert (args.learning_rate, args.adam_beta_1, args.adam_beta_2) == (2e-3, 0.9, 0.95)
    assert args.train_batch_size == args.train_batch_size_per_device == 4


def test_the_paper_profile_parses_for_eight_gpus(gpus):
    gpus(8)
    args = config.arguments(
        load_recipe("guess-the-number-easy", "paper", [*GPU, "hardware.gpus_per_node=8"])
    )
    assert args.gpus == args.rollout_batch_size == 8
    assert args.bf16 and args.flash_attn and args.vllm_sleep and args.collocate
    assert args.enable_prefix_caching and args.vllm_gpu_ratio == 0.45
    assert args.num_ppo_epochs == 2 and args.learning_rate == 1e-6
    assert args.generate_max_length == 4096 and args.max_model_len == 12800


def test_a_recipe_may_change_the_engines_memory_and_its_caches(gpus):
    gpus(1)
    changes = ["trainer.oat.enable_prefix_caching=false", "trainer.oat.vllm_gpu_ratio=0.3"]
    args = config.arguments(load_recipe("guess-the-number-easy", "small", changes))
    assert not args.enable_prefix_caching and args.vllm_gpu_ratio == 0.3


@pytest.mark.parametrize("profile", ["tiny", "paper"])
def test_the_command_line_needs_no_gpu_and_no_oat(profile):
    words = config.translate(load_recipe("guess-the-number-easy", profile))
    assert all(isinstance(word, str) for word in words)


def test_kl_goes_where_the_recipe_says(recipe):
    in_loss = config.arguments(recipe("algorithm.kl_coef=0.1"))
    assert (in_loss.beta, in_loss.kl_penalty_coef) == (0.1, 0.0)
    in_reward = config.arguments(recipe("algorithm.kl_coef=0.1", "algorithm.kl_in=reward"))
    assert (in_reward.beta, in_reward.kl_penalty_coef) == (0.0, 0.1)


@pytest.mark.parametrize("estimator", ["rebn", "gae"])
def test_only_gae_trains_a_critic(recipe, estimator):
    lr = ["algorithm.critic_lr=0.25"] if estimator == "gae" else []
    args = config.arguments(recipe(f"algorithm.estimator={estimator}", *lr))
    assert (args.critic_type == "ppo") == (estimator == "gae")
    assert (args.critic_learning_rate == 0.25) == (estimator == "gae")


@pytest.mark.parametrize(
    ("steps", "epochs", "minibatches", "warmup", "micro"),
    [(300, 1, 1, 7, None), (7, 2, 3, 5, 4), (3, 2, 1, 0, 1)],
)
def test_oats_arithmetic_plans_the_recipes_updates(
    recipe, steps, epochs, minibatches, warmup, micro
):
    """The sums of LearnerBase._init, for the data set of the adapter's learner."""
    overrides = [
        f"train.steps={steps}",
        f"algorithm.epochs={epochs}",
        f"algorithm.minibatches={minibatches}",
        f"algorithm.warmup_steps={warmup}",
    ]
    if micro is not None:
        overrides.append(f"batch.micro_batch={micro}")
    args = config.arguments(recipe(*overrides, "algorithm.lr_schedule=cosine"))
    per_epoch = int(steps * args.max_epochs // args.train_batch_size)
    total = math.ceil(args.num_prompt_epoch * per_epoch) * args.max_step_adjustment
    assert total == steps * epochs * minibatches
    assert math.ceil(total * args.lr_warmup_ratio) == warmup * epochs * minibatches
    assert args.lr_scheduler == "cosine"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["algorithm.clip_high=0.3"], r"\.clip_low = 0\.2 and algorithm\.clip_high = 0\.3"),
        (["algorithm.entropy_coef=0.1"], r"algorithm\.entropy_coef"),
        (["train.steps=0"], r"train\.steps"),
        (["hardware.engine=sglang"], r"hardware\.engine"),
        ([*GPU, "hardware.engine=hf"], r"hardware\.engine = 'hf' and hardware\.device = 'gpu'"),
        (["hardware.gpus_per_node=2"], r"hardware\.gpus_per_node = 2: on a CPU"),
        ([*GPU, "hardware.nodes=2"], r"hardware\.nodes = 2.*one machine"),
        ([*GPU, "hardware.gpus_per_node=3"], r"batch\.episodes = 8.*multiple of 3 GPUs"),
        (["trainer.oat.use_fused_lm_head=true"], r"batch\.micro_batch.*no gradient"),
        (["trainer.oat.use_fused_lm_head=true", "batch.micro_batch=2"], r"batch\.micro_batch = 2"),
    ],
)
def test_what_oat_cannot_do_is_refused_by_name(recipe, overrides, message):
    with pytest.raises(RecipeError, match=message):
        config.translate(recipe(*overrides))


def test_a_cpu_run_takes_vllm_where_the_tests_ask_for_it(recipe, monkeypatch):
    with pytest.raises(RecipeError, match=r"hardware\.engine = 'vllm'"):
        config.translate(recipe("hardware.engine=vllm"))
    monkeypatch.setenv(REAL_VARIABLE, "launchpad")
    with pytest.raises(RecipeError, match=r"hardware\.engine = 'vllm'"):
        config.translate(recipe("hardware.engine=vllm"))
    monkeypatch.setenv(REAL_VARIABLE, "launchpad,vllm")
    config.translate(recipe("hardware.engine=vllm"))
    with pytest.raises(RecipeError, match=r"hardware\.engine = 'hf'"):
        config.translate(recipe("hardware.engine=hf"))


def test_native_arguments_pass_through(recipe):
    args = config.arguments(recipe("trainer.oat.zero_stage=1", "trainer.oat.vf_coef=0.25"))
    assert (args.zero_stage, args.vf_coef) == (1, 0.25)


def test_native_arguments_win_over_the_adapters_defaults(recipe, monkeypatch):
    monkeypatch.setenv("GEM_CORE_TRUST", "1")  # an address is refused without it
    changed = {
        "enable_prefix_caching": True,
        "flash_attn": True,
        "master_addr": "10.0.0.1",
        "use_fused_lm_head": False,
        "vllm_gpu_ratio": 0.5,
        "vllm_sleep": True,
    }
    assert changed.keys() == config.NATIVE_DEFAULTS.keys()
    for name, value in changed.items():
        plain = recipe("batch.micro_batch=1")
        args = config.arguments(native(plain, name, value))
        assert getattr(args, name) == value != getattr(config.arguments(plain), name)


def test_native_arguments_are_checked(recipe):
    with pytest.raises(RecipeError, match=r"trainer\.oat\.zero_stag: .*Did you mean 'zero_stage'"):
        config.translate(recipe("trainer.oat.zero_stag=1"))
    with pytest.raises(RecipeError, match="refuses a value"):
        config.arguments(recipe("trainer.oat.zero_stage=many"))


def test_the_arguments_are_those_of_the_class():
    assert argument_names() == PPOArgs.__dataclass_fields__.keys()


def test_the_fused_head_is_used_where_it_is_right(recipe):
    assert config.arguments(recipe("batch.micro_batch=1")).use_fused_lm_head


def test_max_queries_ends_no_run_early(recipe):
    """Oat stops after max_train rows, 50,000 by default; the recipe counts steps."""
    assert config.arguments(recipe()).max_queries >= 10**12


def test_a_kill_while_a_checkpoint_is_written_leaves_another(recipe):
    """Oat deletes the oldest before it writes the new one."""
    assert config.arguments(recipe("train.keep_checkpoints=1")).max_save_num == 2
    assert config.arguments(recipe("train.keep_checkpoints=5")).max_save_num == 5


def native(recipe, name, value):
    """``recipe`` with an entry in ``[trainer.oat]``."""
    data = recipe.to_dict()
    data["trainer"] = {"oat": {name: value}}
    return recipe_from_dict(data)


@pytest.mark.parametrize("name", sorted(config.NATIVE_OWNED))
def test_arguments_that_something_else_decides_are_refused(recipe, name):
    for spelling in {name, name.replace("_", "-"), f"+{name}"}:
        with pytest.raises(RecipeError, match=rf"trainer\.oat\.{spelling.lstrip('+')}: .{{9}}"):
            config.translate(native(recipe(), spelling, 1))


def test_the_recipes_key_is_named(recipe):
    expected = {
        "learning_rate": "set algorithm.lr instead",
        "beta": "set algorithm.kl_coef and algorithm.kl_in instead",
        "temperature": "set sampling.temperature instead",
        "gamma": "set algorithm.gamma instead",
        "lr_scheduler": "set algorithm.lr_schedule instead",
        "fp16": "set model.dtype instead",
    }
    assert {name: config.NATIVE_OWNED[name] for name in expected} == expected
    named = " ".join(config.NATIVE_OWNED.values()).replace(",", " ").split()
    tables = {key.split(".")[0] for key in recipe_keys()}
    keys = [word for word in named if "." in word and word.split(".")[0] in tables]
    assert len(set(keys)) > 25 and set(keys) <= set(recipe_keys())


def test_owned_and_overridable_arguments_are_oats(recipe):
    """All are arguments of Oat, and whatever `translate` sets is one or the other."""
    assert config.NATIVE_OWNED.keys() <= PPOArgs.__dataclass_fields__.keys()
    assert config.NATIVE_DEFAULTS.keys() <= PPOArgs.__dataclass_fields__.keys()
    assert not config.NATIVE_OWNED.keys() & config.NATIVE_DEFAULTS.keys()
    words = config.translate(recipe())
    names = {word.removeprefix("--").removeprefix("no-") for word in words if word[:2] == "--"}
    assert names <= config.NATIVE_OWNED.keys() | config.NATIVE_DEFAULTS.keys()


def test_translation_is_pure(recipe, tmp_path, monkeypatch):
    monkeypatch.setenv("GEM_CORE_CACHE", str(tmp_path / "cache"))
    assert config.translate(recipe()) == config.translate(recipe())
    assert not (tmp_path / "cache").exists()
