"""What a recipe becomes in TRL's own configuration, and what is refused."""

from __future__ import annotations

import pytest
from trl import GRPOConfig

from gem_core.errors import MissingDependencyError, RecipeError
from gem_core.training.recipe import load_recipe
from gem_trl._compat import GRPOTrainer, check_private_signatures
from gem_trl.config import translate
from gem_trl.trainer import native_config

GPU = ["hardware.device=gpu", "hardware.engine=default", "hardware.gpus_per_node=4"]


def native(recipe, folder):
    """TRL's own parser on the translation, without the check that a GPU is here."""
    config = {**translate(recipe), "use_cpu": True}
    return GRPOConfig(output_dir=str(folder), **config)


def test_batching_epochs_and_minibatches(make_recipe, tmp_path):
    keys = ["batch.episodes=24", "batch.micro_batch=4", "algorithm.minibatches=3"]
    config = native(make_recipe(*keys, "algorithm.epochs=2", "train.save_every=2"), tmp_path)
    assert config.per_device_train_batch_size == 4
    assert config.gradient_accumulation_steps == 2
    assert config.steps_per_generation == 6
    assert config.generation_batch_size == 24
    assert config.num_iterations == 2
    assert (config.max_steps, config.save_steps, config.logging_steps) == (18, 12, 6)


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
    assert config.use_vllm and config.vllm_mode == "colocate"
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
        (["context.history=last"], "context.history"),
        (["algorithm.kl_in=reward"], "algorithm.kl_in"),
        (["hardware.engine=sglang"], "hardware.engine"),
        (["hardware.engine=vllm"], "hardware.engine"),
        (["batch.episodes=1"], "batch.episodes"),
        (["algorithm.minibatches=3"], "algorithm.minibatches"),
        (["trainer.trl.num_generations=4"], "num_generations"),
        (["trainer.trl.scale_rewards=none"], "scale_rewards"),
    ],
)
def test_refusals_name_the_key(make_recipe, keys, word):
    with pytest.raises(RecipeError, match=word):
        translate(make_recipe(*keys))


def test_unknown_native_keys_are_refused_with_a_guess(make_recipe, tmp_path):
    with pytest.raises(RecipeError, match="Did you mean 'vllm_mode'"):
        native_config(make_recipe("trainer.trl.vlm_mode=server"), [2], tmp_path)


def test_the_seams_are_as_in_the_tested_version():
    check_private_signatures(GRPOTrainer)


def test_a_changed_seam_is_named():
    class Changed(GRPOTrainer):
        def _generate_single_turn(self, prompts):
            raise NotImplementedError

    with pytest.raises(MissingDependencyError, match="_generate_single_turn"):
        check_private_signatures(Changed)
