"""What a recipe becomes in TRL's own configuration, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from trl import GRPOConfig

from gem_core.errors import MissingDependencyError, RecipeError
from gem_core.runs.recipe.files import flatten, parse_override
from gem_core.runs.recipe.load import load_recipe
from gem_trl._compat import GRPOTrainer, check_private_signatures
from gem_trl.config import (
    NATIVE_DEFAULTS,
    NATIVE_OWNED,
    native_config,
    native_keys,
    translate,
)

GPU = ["hardware.device=gpu", "hardware.engine=default", "hardware.gpus_per_node=4"]


def native(recipe, folder):
    """TRL's own parser on the translation, without the check that a GPU is present."""
    config = {**translate(recipe), "use_cpu": True}
    return GRPOConfig(output_dir=str(folder), **config)


def test_the_example_of_the_documentation_is_accepted(tmp_path):
    page = Path(__file__).parents[3] / "docs" / "recipes.md"
    example = tmp_path / "example.toml"
    example.write_text(page.read_text().split("```toml\n")[-1].split("```")[0])
    assert native_keys(load_recipe(example, "tiny")) == {"report_to": ["tensorboard"]}


def test_batching_epochs_and_minibatches(make_recipe, tmp_path):
    keys = ["batch.episodes=24", "batch.micro_batch=4", "algorithm.minibatches=3"]
    config = native(make_recipe(*keys, "algorithm.epochs=2", "train.save_every=2"), tmp_path)
    assert config.per_device_train_batch_size == 4
    assert config.gradient_accumulation_steps == 2
    assert config.steps_per_generation == 6
    assert config.generation_batch_size == 24
    assert config.num_iterations == 2
    assert (config.max_steps, config.save_steps, config.logging_steps) == (18, 12, 1)


@pytest.mark.parametrize("size, group, rows", [(8, 1, 2), (9, 1, 3), (7, 1, 7), (8, 4, 4)])
def test_rows_per_prompt_divide_the_batch(make_recipe, size, group, rows):
    config = translate(make_recipe(f"batch.episodes={size}", f"batch.group_size={group}"))
    assert config["num_generations"] == rows


@pytest.mark.parametrize(
    "keys, loss, length",
    [
        ([], "dapo", 8),
        (["algorithm.loss_aggregation=sequence"], "grpo", 8),
        (["algorithm.loss_aggregation=constant", "algorithm.loss_constant=77"], "dr_grpo", 77),
    ],
)
def test_loss_aggregation(make_recipe, tmp_path, keys, loss, length):
    config = native(make_recipe(*keys), tmp_path)
    assert (config.loss_type, config.max_completion_length) == (loss, length)
    assert config.generation_kwargs["max_new_tokens"] == 8  # the turn's cap stays


def test_paper_profile_uses_vllm_inside_the_training_processes(tmp_path):
    recipe = load_recipe("guess-the-number-easy", "paper", [*GPU, "model.path=some/model"])
    config = native(recipe, tmp_path)
    assert config.use_vllm and config.vllm_mode == "colocate" and config.vllm_enable_sleep_mode
    assert config.vllm_importance_sampling_mode == "token_truncate"
    assert config.generation_kwargs["max_tokens"] == recipe.limits.max_tokens_per_turn
    assert config.learning_rate == recipe.algorithm.lr
    assert config.num_iterations == recipe.algorithm.epochs
    assert config.bf16 == (recipe.model.dtype == "bfloat16")
    rows = config.per_device_train_batch_size * config.steps_per_generation
    assert rows * 4 == recipe.batch.episodes


def test_a_vllm_server_is_one_native_key(tmp_path):
    keys = [*GPU, "model.path=some/model", "trainer.trl.vllm_mode=server"]
    keys.append("trainer.trl.vllm_server_port=8123")
    config = native(load_recipe("guess-the-number-easy", "paper", keys), tmp_path)
    assert (config.vllm_mode, config.vllm_server_port) == ("server", 8123)


def test_native_tables_merge_and_stop_tokens_are_set(make_recipe, tmp_path):
    recipe = make_recipe("trainer.trl.generation_kwargs={min_new_tokens = 2}")
    config = native_config(recipe, [2, 5], tmp_path)
    expected = {"max_new_tokens": 8, "min_new_tokens": 2, "eos_token_id": [2, 5]}
    assert config.generation_kwargs == expected


@pytest.mark.parametrize(
    "keys, word",
    [
        (["algorithm.kl_in=reward"], "algorithm.kl_in"),
        (["hardware.engine=sglang"], "hardware.engine"),
        (["hardware.engine=vllm"], "hardware.engine"),
        (["batch.episodes=1"], "batch.episodes"),
        (["algorithm.minibatches=3"], "algorithm.minibatches"),
        (["trainer.trl.num_generations=4"], "set batch.group_size instead"),
        (["trainer.trl.generation_kwargs=x"], "write a table"),
    ],
)
def test_refusals_name_the_key(make_recipe, keys, word):
    with pytest.raises(RecipeError, match=word):
        translate(make_recipe(*keys))


def test_unknown_native_keys_are_refused_with_a_guess(make_recipe):
    with pytest.raises(RecipeError, match="Did you mean 'vllm_mode'"):
        translate(make_recipe("trainer.trl.vlm_mode=server"))


@pytest.mark.parametrize("key", sorted(NATIVE_OWNED))
def test_what_the_recipe_decides_is_refused_by_name(make_recipe, key):
    with pytest.raises(RecipeError) as error:
        translate(make_recipe(f"trainer.trl.{key}=1"))
    assert str(error.value) == f"trainer.trl.{key}: {NATIVE_OWNED[key]}."


def test_every_field_that_is_set_is_owned_or_a_default(make_recipe):
    recipes = [
        make_recipe(),
        load_recipe("guess-the-number-easy", "paper", [*GPU, "model.path=some/model"]),
        load_recipe("guess-the-number-easy", "paper", [*GPU, "hardware.engine=hf"]),
    ]
    assert not NATIVE_DEFAULTS.keys() & NATIVE_OWNED.keys()
    for recipe in recipes:
        fields = flatten(translate(recipe))
        assert fields.keys() - NATIVE_DEFAULTS.keys() <= NATIVE_OWNED.keys()


def test_the_table_names_fields_that_exist():
    fields = {field.name for field in dataclasses.fields(GRPOConfig)}
    named = NATIVE_OWNED.keys() | NATIVE_DEFAULTS.keys()
    assert {key.partition(".")[0] for key in named} <= fields


@pytest.mark.parametrize("key", sorted(NATIVE_DEFAULTS))
def test_defaults_may_be_changed(make_recipe, key):
    native = parse_override(f"{key}=other")
    config = translate(make_recipe(f"trainer.trl.{key}=other"))
    assert flatten(native).items() <= flatten(config).items()


def test_fields_that_no_recipe_key_decides_pass_through(make_recipe, tmp_path):
    native = ["trainer.trl.min_p=0.25", "trainer.trl.model_init_kwargs.attn_implementation=eager"]
    config = native_config(make_recipe(*native), [2], tmp_path)
    assert config.min_p == 0.25
    tables = {"dtype": "float32", "revision": None, "device_map": None}
    tables |= {"attn_implementation": "eager"}
    assert config.model_init_kwargs == tables


@pytest.mark.parametrize("change", ["trainer.trl.vllm_mode=server", "hardware.engine=hf"])
def test_only_an_engine_inside_the_training_processes_sleeps(change):
    recipe = load_recipe("guess-the-number-easy", "paper", [*GPU, change])
    assert "vllm_enable_sleep_mode" not in translate(recipe)


def test_private_methods_are_as_in_the_tested_version():
    check_private_signatures(GRPOTrainer)


def test_a_changed_private_method_is_named():
    class Changed(GRPOTrainer):
        def _generate_single_turn(self, prompts):
            raise NotImplementedError

    with pytest.raises(MissingDependencyError, match="_generate_single_turn"):
        check_private_signatures(Changed)


def test_a_private_method_that_is_gone_is_named():
    class Gone:
        _generate_and_score_completions = GRPOTrainer._generate_and_score_completions

    with pytest.raises(MissingDependencyError, match="_generate_single_turn takes \\(nothing\\)"):
        check_private_signatures(Gone)
