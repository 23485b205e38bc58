"""The recipe as OpenRLHF's own parser reads it; which native flags a recipe may set."""

from __future__ import annotations

import math

import pytest

from gem_core.errors import RecipeError
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.files import shipped
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.recipe.recipe import recipe_keys
from gem_openrlhf.checks import NEEDS
from gem_openrlhf.command_line import check_arguments, known_flags, parser
from gem_openrlhf.config import NATIVE_DEFAULTS, NATIVE_OWNED, flags, render, translate
from gem_openrlhf.cpu.parse import parse
from gem_openrlhf.launch import has_several_rows, run_flags

ASYNC = "trainer.openrlhf.train.async_enable=true"


def parsed(recipe):
    return parse([*translate(recipe), "--train.agent_func_path", "x.py"])


def paper(*overrides):
    return load_recipe("guess-the-number-easy", "paper", overrides)


def test_tiny(tiny):
    batch = ("batch.episodes=64", "batch.group_size=4", "batch.micro_batch=8")
    optimizer = ("algorithm.minibatches=2", "algorithm.lr=2e-3", "algorithm.lr_schedule=constant")
    args = parsed(tiny(*batch, *optimizer))
    assert (args.rollout.batch_size, args.rollout.n_samples_per_prompt) == (16, 4)
    assert (args.train.batch_size, args.train.micro_batch_size) == (32, 8)
    assert args.rollout.micro_batch_size == 8
    assert args.data.max_len == 512
    assert args.actor.adam.lr == 2e-3
    assert args.actor.adam.betas == [0.9, 0.95]
    assert args.actor.lr_scheduler == "constant_with_warmup"
    assert args.algo.advantage.estimator == "reinforce"
    assert args.critic.model_name_or_path is None
    assert args.algo.kl.init_coef == 0
    assert args.algo.advantage.is_correction_level == "off"


@pytest.mark.parametrize("baseline", sorted(shipped("baselines")))
def test_the_paper_profile_parses(baseline):
    args = parsed(load_recipe(baseline, "paper"))
    assert args.train.colocate_all and args.vllm.enable_sleep and args.ds.enable_sleep
    assert args.vllm.num_engines == args.actor.num_gpus_per_node == 8
    assert args.vllm.sync_backend == "nccl"
    assert args.ds.param_dtype == "bf16"
    assert args.actor.gradient_checkpointing_enable
    assert args.train.micro_batch_size * 8 <= 128


def test_async_splits_the_gpus_and_the_recipe_corrects_the_loss():
    assert parsed(paper(ASYNC)).algo.advantage.is_correction_level == "off"
    args = parsed(paper(ASYNC, "algorithm.rollout_correction=tis"))
    assert (args.actor.num_gpus_per_node, args.vllm.num_engines) == (4, 4)
    assert args.train.async_enable
    assert not args.vllm.enable_sleep
    assert args.algo.advantage.is_correction_level == "token"
    assert args.algo.advantage.is_correction_threshold == [0.0, 2.0]


def test_gae_brings_the_critic(tiny):
    args = parsed(tiny("algorithm.estimator=gae", "algorithm.critic_lr=0.5"))
    assert args.critic.model_name_or_path == "tiny"
    assert args.critic.adam.lr == 0.5


@pytest.mark.parametrize(
    ("where", "use_loss", "kind"), [("loss", True, "k3"), ("reward", False, "k1")]
)
def test_kl(tiny, where, use_loss, kind):
    args = parsed(tiny("algorithm.kl_coef=0.1", f"algorithm.kl_in={where}"))
    assert (args.algo.kl.init_coef, args.algo.kl.use_loss) == (0.1, use_loss)
    assert args.algo.kl.estimator == kind


@pytest.mark.parametrize("steps", [1, 3, 7, 13])
def test_warmup_is_exactly_what_was_asked_for(tiny, steps):
    recipe = tiny(f"algorithm.warmup_steps={steps}", "train.steps=13", "algorithm.epochs=3")
    assert math.ceil(39 * parsed(recipe).actor.lr_warmup_ratio) == 3 * steps  # optimizer steps


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_schedules(tiny, schedule):
    assert parsed(tiny(f"algorithm.lr_schedule={schedule}")).actor.lr_scheduler == schedule


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("hardware.engine=sglang", "hardware.engine"),
        ("hardware.device=gpu", "model.dtype"),
        ("batch.micro_batch=7", "batch.micro_batch"),
        ("algorithm.minibatches=5", "algorithm.minibatches"),
        ("hardware.offload=all", "hardware.offload"),
        ("hardware.sharding=none", "hardware.sharding"),  # in float32
        ("batch.max_tokens_per_device=511", "limits.max_context_tokens"),
        ("hardware.engine=vllm", "model.dtype"),
    ],
)
def test_impossible_values_are_refused_by_name(tiny, override, key):
    with pytest.raises(RecipeError, match=key.replace(".", r"\.")):
        translate(tiny(override))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("model.lora.rank=4", "model.lora.alpha=0.5"), "whole numbers"),
        (("model.lora.rank=4", "algorithm.estimator=gae"), "value head would stay at zero"),
        (("model.lora.rank=4", "hardware.sharding=full"), "merged weights"),
        (("hardware.engine_tensor_parallel=4", "hardware.gpus_per_node=2"), "multiple of 4|fill"),
        (
            ("hardware.engine_tensor_parallel=4", "hardware.gpus_per_node=4", ASYNC),
            "fill the 2 GPUs",
        ),
        (("hardware.tensor_parallel=2",), "bfloat16 only"),
        (("hardware.sequence_parallel=2",), "ring attention"),
    ],
)
def test_impossible_settings_of_gpus_are_refused(overrides, message):
    with pytest.raises(RecipeError, match=message):
        translate(paper(*overrides))


@pytest.mark.parametrize(
    ("overrides", "engines"), [((), 4), ((ASYNC,), 2), (("hardware.nodes=2",), 8)]
)
def test_engines_of_several_gpus_fill_the_machines(overrides, engines):
    """OpenRLHF asserts this after it has started Ray."""
    keys = ("hardware.engine_tensor_parallel=2", "hardware.gpus_per_node=8", *overrides)
    args = parsed(paper(*keys))
    assert (args.vllm.tensor_parallel_size, args.vllm.num_engines) == (2, engines)


def test_whole_copies_of_the_weights_do_not_sleep():
    """DeepSpeed moves divided states only."""
    args = parsed(paper("hardware.sharding=none"))
    assert args.ds.zero_stage == 0 and not args.ds.enable_sleep


def test_async_needs_two_gpus():
    with pytest.raises(RecipeError, match="gpus_per_node"):
        translate(paper(ASYNC, "hardware.gpus_per_node=1"))


# -- native flags ---------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", sorted(NATIVE_OWNED))
def test_owned_flags_are_refused_and_the_message_tells_what_decides_them(tiny, flag):
    with pytest.raises(RecipeError) as error:
        translate(tiny(f"trainer.openrlhf.{flag}=1"))
    assert f"trainer.openrlhf.{flag}: {NATIVE_OWNED[flag]}" in str(error.value)


def test_the_message_names_recipe_keys_that_exist():
    for flag, reason in NATIVE_OWNED.items():
        words = reason.removeprefix("set ").removesuffix(" instead").split(" and ")
        if reason.startswith("set "):
            assert set(words) <= set(recipe_keys()), flag


@pytest.mark.parametrize(
    "recipe",
    [
        load_recipe("guess-the-number-easy", "tiny", ["eval.every=2"]),
        paper(),
        paper("hardware.nodes=2", "algorithm.estimator=gae", "algorithm.kl_coef=0.1"),
        paper(ASYNC),
    ],
    ids=["tiny", "paper", "critic", "async"],
)
def test_every_flag_that_is_set_is_owned_or_a_default(recipe, tmp_path, monkeypatch, untrained):
    monkeypatch.setattr("gem_openrlhf.launch.model_source", lambda recipe, *_: untrained)
    run = RunDir.create(tmp_path / "run", recipe, "openrlhf")
    names = {**flags(recipe), **run_flags(recipe, run)}.keys()
    assert names - NATIVE_OWNED.keys() - NATIVE_DEFAULTS.keys() <= {"train.async_enable"}
    assert not NATIVE_DEFAULTS.keys() & NATIVE_OWNED.keys()


def test_openrlhf_has_all_of_these_flags():
    assert NATIVE_OWNED.keys() | NATIVE_DEFAULTS.keys() <= known_flags()


@pytest.mark.parametrize(
    ("override", "need", "met"),
    [
        ("critic.adam.eps=0.1", "a critic", ["algorithm.estimator=gae"]),
        ("ref.offload=true", "a reference model", ["algorithm.kl_coef=0.1"]),
        ("train.ema_beta=0.5", "train.enable_ema", ["trainer.openrlhf.train.enable_ema=true"]),
        ("train.async_queue_size=2", "train.async_enable", [ASYNC]),
        ("ds.lora.dropout=0.1", "adapters", ["model.lora.rank=4"]),
        ("ds.zpg=2", "divided weights", ["hardware.sharding=full"]),
        (
            "vllm.enable_sleep=true",
            "training and generation to take turns",
            ["trainer.openrlhf.train.colocate_all=true"],
        ),
    ],
)
def test_native_flags_that_would_do_nothing_are_refused(tiny, override, need, met):
    flag, _, value = override.partition("=")
    with pytest.raises(RecipeError, match=f"{flag}: it would do nothing, it needs {need}"):
        translate(tiny(f"trainer.openrlhf.{override}"))
    args = parsed(tiny(f"trainer.openrlhf.{override}", *met))
    seen = args
    for part in flag.split("."):
        seen = getattr(seen, part)
    assert str(seen).lower() == value


def test_flags_that_need_something_exist():
    flags_with_needs = {flag for need in NEEDS for flag in need.flags.split()}
    assert flags_with_needs <= known_flags() - NATIVE_OWNED.keys()


def test_free_native_flags_pass_through_and_may_be_nested(tiny):
    args = parsed(tiny("trainer.openrlhf.ckpt.max_mem=9", "trainer.openrlhf.actor.adam.eps=1e-5"))
    assert args.ckpt.max_mem == 9
    assert args.actor.adam.eps == 1e-5


def test_defaults_may_be_set_otherwise(tiny):
    assert parsed(tiny("trainer.openrlhf.vllm.num_engines=2")).vllm.num_engines == 2
    args = parsed(paper("trainer.openrlhf.vllm.enable_prefix_caching=false"))
    assert not args.vllm.enable_prefix_caching


@pytest.mark.parametrize(
    ("flag", "hint"),
    [
        ("ds.overlap_com", "Did you mean 'ds.overlap_comm'"),  # the parser would complete it
        ("ds.overlap_comms", "Did you mean 'ds.overlap_comm'"),
        ("actor.adam.l", "Did you mean 'actor.adam.lr'"),
        ("actor.adam-lr", "Did you mean 'actor.adam.lr'"),
        ("--actor.adam.lr", "set algorithm.lr instead"),  # a flag as on the command line
        ("no.such", "no such flag"),
    ],
)
def test_unknown_native_flags_are_refused_with_the_nearest_one(tiny, flag, hint):
    from msgspec.structs import replace

    with pytest.raises(RecipeError, match=hint):
        translate(replace(tiny(), trainer={"openrlhf": {flag: 1}}))


def test_a_flag_cannot_hide_in_a_list(tiny, monkeypatch):
    monkeypatch.setenv("GEM_CORE_TRUST", "1")  # without it, the text is refused by itself
    names = 'trainer.openrlhf.logger.wandb.key=["1", "--actor.adam.lr", "1"]'
    with pytest.raises(RecipeError, match="would be read as a flag"):
        translate(tiny(names))


def test_wrong_values_are_refused_before_anything_starts(tiny):
    with pytest.raises(RecipeError, match=r"vllm\.num_engines: invalid int value: 'two'"):
        check_arguments(translate(tiny("trainer.openrlhf.vllm.num_engines=two")))
    with pytest.raises(RecipeError, match="unrecognized arguments: yes"):
        check_arguments(render({"ds.packing_samples": "yes"}))


def flattened(namespace, prefix=""):
    names = set()
    for name, value in vars(namespace).items():
        nested = hasattr(value, "__dict__")
        names |= flattened(value, f"{prefix}{name}.") if nested else {f"{prefix}{name}"}
    return names


def test_the_parser_is_the_one_that_openrlhf_uses(tiny):
    arguments = translate(tiny())
    assert vars(parser().parse_args(arguments)).keys() == flattened(parsed(tiny()))


def test_passes_by_tokens_are_refused_where_an_episode_has_several_rows(tiny):
    by_tokens = ("batch.max_tokens_per_device=160", "limits.max_context_tokens=160")
    translate(tiny(*by_tokens))
    with pytest.raises(RecipeError, match=r"batch\.max_tokens_per_device .* set batch.micro_batch"):
        translate(tiny(*by_tokens, "context.history=last"))


def test_a_chat_template_that_drops_thinking_is_noticed_before_ray_starts(
    tiny, tmp_path, tokenizer
):
    tokenizer.save_pretrained(tmp_path)
    chat = ("context.template=chat", f"model.path={tmp_path}")
    assert not has_several_rows(tiny(*chat))
    assert has_several_rows(tiny("context.history=last"))
    before = tokenizer.chat_template
    dropping = "message['content'].split('</think>')[-1]"
    tokenizer.chat_template = before.replace("message['content']", dropping)
    try:
        tokenizer.save_pretrained(tmp_path)
    finally:
        tokenizer.chat_template = before
    assert has_several_rows(tiny(*chat))
    by_tokens = ("batch.max_tokens_per_device=160", "limits.max_context_tokens=160")
    with pytest.raises(RecipeError, match=r"batch\.max_tokens_per_device"):
        has_several_rows(tiny(*chat, *by_tokens))
