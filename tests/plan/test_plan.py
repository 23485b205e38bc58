import re
from dataclasses import replace
from pathlib import Path

import pytest

from gem_core.cli import main
from gem_core.errors import RecipeError
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.trainers import get_trainer, trainer_names
from gem_preflight.estimate import _states, bytes_per_logit, estimate
from gem_preflight.shapes import QWEN3, model_shape

BASELINE = "guess-the-number-easy"


def paper(*overrides: str):
    return load_recipe(BASELINE, "paper", ("hardware.gpus_per_node=8", *overrides))


FOUR = ("batch.micro_batch=1", "model.path=Qwen/Qwen3-4B-Base")


def test_each_trainer_has_its_own_bytes_of_a_logit():
    logits = 12800 * 151936
    expected = {"trl": 0, "verl": 14, "openrlhf": 14, "oat": 0, "rl2": 20}
    for trainer, size in expected.items():
        assert _logit_bytes(paper(), trainer) == size, trainer
    assert estimate(paper(), "rl2", 80).parts["logits"] == 20 * logits
    assert _logit_bytes(paper("algorithm.entropy_coef=0.01"), "openrlhf") == 28
    assert _logit_bytes(paper("batch.micro_batch=2"), "oat") == 16  # no fused head
    assert _logit_bytes(paper("trainer.oat.use_fused_lm_head=false"), "oat") == 16


def _logit_bytes(recipe, trainer):
    return bytes_per_logit(recipe, trainer, get_trainer(trainer).memory)


def test_gradients_beside_their_buckets_are_counted_twice():
    how = get_trainer("trl").memory
    recipe = paper(*FOUR)
    shape = model_shape(recipe.model)
    views = _states(recipe, how, shape)
    copies = _states(recipe, replace(how, buckets=4), shape)
    assert copies["gradients"] == 2 * views["gradients"] == 2 * 4 * shape.parameters
    alone = paper("hardware.gpus_per_node=1", *FOUR)
    assert _states(alone, replace(how, buckets=4), shape) == _states(alone, how, shape)


def test_a_part_of_the_gradients_has_whole_tensors_with_deepspeed():
    shape = QWEN3["Qwen3-4B"]
    embedding = 2 * shape.vocab * shape.hidden
    for trainer in ("openrlhf", "oat"):
        assert _gradients(trainer, 8) == 2 * shape.parameters // 8  # more than the embedding
        assert _gradients(trainer, 64) == embedding > 2 * shape.parameters // 64
    assert _gradients("openrlhf", 64, "hardware.sharding=full") == 2 * shape.parameters // 64
    assert _gradients("verl", 64) == 4 * shape.parameters // 64
    assert _gradients("oat", 64, "model.lora.rank=32") == 0


def _gradients(trainer, gpus, *keys):
    sizes = (f"hardware.nodes={max(1, gpus // 8)}", "hardware.gpus_per_node=8")
    recipe = paper(*FOUR, *sizes, *keys)
    return _states(recipe, get_trainer(trainer).memory, model_shape(recipe.model))["gradients"]


def test_deepspeeds_bucket_is_there_in_the_backward_pass_alone():
    for trainer in ("openrlhf", "oat"):
        assert estimate(paper(), trainer, 80).parts["reduce bucket"] == 1_000_000_000
    assert "reduce bucket" not in estimate(paper(), "verl", 80).parts
    undivided = estimate(paper("hardware.sharding=none"), "openrlhf", 80)
    assert "reduce bucket" not in undivided.parts
    short = paper("model.path=Qwen/Qwen3-32B", "limits.max_context_tokens=128")
    step = estimate(short, "oat", 80)
    assert step.moment == "in the optimizer's step" and "reduce bucket" not in step.parts


def test_a_tied_heads_gradient_waits_for_the_embeddings():
    small = ("batch.micro_batch=1", "model.path=Qwen/Qwen3-0.6B")
    tied = estimate(paper(*small), "trl", 80)
    frozen = estimate(paper(*small, "model.lora.rank=32"), "trl", 80)
    assert tied.moment == frozen.moment == "in the last layer's backward pass"
    waiting = 4 * 151936 * 1024
    assert tied.parts["temporaries"] - frozen.parts["temporaries"] == waiting


def test_a_fused_head_in_chunks_has_the_logits_of_one():
    plan = estimate(paper(), "oat", 80)
    assert plan.moment == "in the output head's backward pass"
    assert plan.parts["logits"] == 20 * 512 * 151936
    whole = estimate(paper("trainer.oat.use_fused_lm_head=false"), "oat", 80)
    assert whole.parts["logits"] == 16 * 12800 * 151936


AWAKE = {
    "trl": "vllm_enable_sleep_mode",
    "verl": "actor_rollout_ref.rollout.free_cache_engine",
    "openrlhf": "vllm.enable_sleep",
    "oat": "vllm_sleep",
}


@pytest.mark.parametrize("trainer", sorted(AWAKE))
def test_an_engine_that_stays_awake_is_counted(trainer):
    key = f"trainer.{trainer}.{AWAKE[trainer]}"
    assert "engine" not in estimate(paper(), trainer, 80).parts
    plan = estimate(paper(f"{key}=false"), trainer, 80)
    engine = get_trainer(trainer).memory.engine
    assert plan.parts["engine"] == int(engine.share * 80e9)
    quarter = f"trainer.{trainer}.{engine.share_key}=0.25"
    assert estimate(paper(f"{key}=false", quarter), trainer, 80).parts["engine"] == 20e9


def test_an_engine_on_other_gpus_is_not_counted():
    keys = ("trainer.trl.vllm_enable_sleep_mode=false", "trainer.trl.vllm_mode=server")
    assert "engine" not in estimate(paper(*keys), "trl", 80).parts
    assert "engine" not in estimate(paper(keys[0], "hardware.engine=hf"), "trl", 80).parts


def test_four_billion_weights_are_too_many_for_trl_and_what_is_advised_fits():
    (problem,) = estimate(paper(*FOUR), "trl", 80).problems
    assert "model.lora.rank" in problem and "verl, OpenRLHF, RL2" in problem
    assert estimate(paper(*FOUR, "model.lora.rank=32"), "trl", 80).problems == ()
    for trainer in ("verl", "openrlhf", "rl2"):
        assert estimate(paper(*FOUR), trainer, 80).problems == ()


def test_an_engine_needs_room_beside_what_training_keeps():
    share = "trainer.trl.vllm_gpu_memory_utilization"
    shorter = ("limits.max_context_tokens=8192",)
    (problem,) = estimate(paper(*FOUR, *shorter, f"{share}=0.5"), "trl", 84).problems
    assert "While episodes are played, 48 GB of training stay" in problem
    most = problem.split(f"{share} to at most ")[1].rstrip(".")
    assert estimate(paper(*FOUR, *shorter, f"{share}={most}"), "trl", 84).problems == ()
    (problem,) = estimate(paper(*FOUR, *shorter), "trl", 73).problems
    assert "model.lora.rank" in problem


def test_the_sizes_give_the_known_numbers_of_parameters():
    assert QWEN3["Qwen3-1.7B"].parameters == pytest.approx(1.72e9, rel=0.01)
    assert QWEN3["Qwen3-8B"].parameters == pytest.approx(8.19e9, rel=0.01)


@pytest.mark.parametrize("trainer", ["openrlhf", "rl2"])
def test_whole_minibatches_of_the_paper_profile_overflow(trainer: str):
    plan = estimate(paper("batch.micro_batch=16"), trainer, 80)
    assert plan.tokens_per_pass == 16 * 12800
    assert plan.parts["logits"] > 120e9
    assert "batch.micro_batch" in plan.problems[0]


@pytest.mark.parametrize("trainer", trainer_names())
def test_one_row_in_a_pass_fits(trainer: str):
    assert estimate(paper("batch.micro_batch=1"), trainer, 80).problems == ()


PROFILES = Path(__file__).parents[2] / "recipes" / "profiles"
BASELINES = sorted(path.stem for path in (PROFILES.parent / "baselines").glob("*.toml"))


def what_the_profile_says():
    """Gigabytes and overrides of each GPU that the comments of the profile small promise."""
    text = (PROFILES / "small.toml").read_text(encoding="utf-8").split("\n[")[0]
    sizes = [int(size) for size in re.findall(r"(\d+) GB or more", text)]
    (override,) = re.findall(r"--set (\S+)", text)
    return list(zip(sizes, [[], [override]], strict=True))


@pytest.mark.parametrize("gigabytes, overrides", what_the_profile_says())
def test_the_profile_small_fits_the_gpus_that_it_names(gigabytes, overrides, capsys):
    for trainer in trainer_names():
        arguments = ["plan", BASELINE, "--profile", "small", "--trainer", trainer]
        arguments += ["--gpus", f"1x{gigabytes}", *(f"--set={word}" for word in overrides)]
        assert main(arguments) == 0, capsys.readouterr().out
    for baseline in BASELINES:
        recipe = load_recipe(baseline, "small", overrides)
        for trainer in trainer_names():
            assert estimate(recipe, trainer, gigabytes).problems == (), (baseline, trainer)


def test_the_bound_that_is_advised_fits():
    refused = estimate(paper("batch.max_tokens_per_device=200000"), "openrlhf", 80)
    most = int(refused.problems[0].split("at most ")[1].split()[0])
    fits = estimate(paper(f"batch.max_tokens_per_device={most}"), "openrlhf", 80)
    assert fits.problems == ()


def test_rows_that_are_advised_fit_and_one_more_does_not():
    refused = estimate(paper("batch.micro_batch=16"), "rl2", 80)
    assert "(now 16 rows go through one forward pass)" in refused.problems[0]
    most = int(refused.problems[0].split("at most ")[1].split()[0])
    assert estimate(paper(f"batch.micro_batch={most}"), "rl2", 80).problems == ()
    assert estimate(paper(f"batch.micro_batch={most + 1}"), "rl2", 80).problems != ()


def test_one_row_that_is_too_long_says_so():
    refused = estimate(paper("batch.micro_batch=1", "model.path=Qwen/Qwen3-14B"), "trl", 80)
    assert "one row of limits.max_context_tokens = 12800 is too long already" in refused.problems[0]


def test_the_parts_are_those_of_the_largest_moment():
    long = estimate(paper("batch.micro_batch=1"), "verl", 80)
    assert long.moment == "at the loss"
    assert long.parts["logits"] == 12800 * 151936 * 14
    short = estimate(paper("batch.micro_batch=1", "limits.max_context_tokens=512"), "verl", 80)
    assert short.moment != "at the loss"
    assert short.parts["temporaries"] > 0


def test_autocast_of_trl_copies_weights_and_its_fused_optimizer_makes_nothing():
    recipe = paper("batch.micro_batch=1", "model.gradient_checkpointing=false")
    plan = estimate(recipe, "trl", 80)
    assert plan.moment.endswith("backward pass")
    assert plan.parts["temporaries"] > 2 * 1.4e9  # a bfloat16 copy of each layer's products
    assert plan.parts["logits"] == 0
    again = estimate(paper("batch.micro_batch=1"), "trl", 80)
    assert again.moment != "in the optimizer's step"


def test_keys_and_values_are_in_the_type_of_the_model():
    row = 2 * 28 * 8 * 128 * 12800  # keys and values, layers, heads, size of a head, tokens
    assert estimate(paper(), "trl", 80).cache_per_row == 2 * row
    assert estimate(paper("model.dtype=float32"), "trl", 80).cache_per_row == 4 * row


def test_the_table_says_when_the_most_is_needed(capsys):
    arguments = ["plan", BASELINE, "--profile", "paper", "--trainer", "verl", "--gpus", "8x80"]
    assert main([*arguments, "--set", "batch.micro_batch=1"]) == 0
    assert "The most is needed at the loss." in capsys.readouterr().out


def test_a_lora_makes_no_gradients_of_the_embedding():
    lora = ("model.lora.rank=8", "limits.max_context_tokens=512")
    plan = estimate(paper("batch.micro_batch=1", *lora), "verl", 80)
    assert plan.moment == "at the loss"


def test_a_model_of_unknown_sizes_is_refused():
    with pytest.raises(RecipeError, match=r"config\.json"):
        estimate(paper("model.path=someone/model"), "trl", 80)


@pytest.mark.parametrize("gpus", ["8", "0x80", "eightx80"])
def test_gpus_are_number_and_size(gpus: str, capsys):
    arguments = ["plan", BASELINE, "--profile", "paper", "--trainer", "trl", "--gpus", gpus]
    assert main(arguments) != 0
    assert "8x80" in capsys.readouterr().err
