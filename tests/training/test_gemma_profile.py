"""The profile `gemma` composes with every baseline of the suite, and fits the memory it is for."""

from __future__ import annotations

import json

import pytest

from gem_core.cli import main
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.recipe.suite import load_suite
from gem_core.runs.task_overlap import task_overlap

PROFILE = "gemma"
SUITE = [baseline.name for baseline in load_suite()]
MEMORY_GB = 24
CONFIG = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "vocab_size": 262144,
    "hidden_size": 640,
    "intermediate_size": 2048,
    "num_hidden_layers": 18,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "tie_word_embeddings": True,
}
"""The sizes of Gemma 3 270M."""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with the sizes of the model, and no weights."""
    folder = tmp_path_factory.mktemp("gemma")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


def test_the_suite_has_24_baselines():
    assert len(SUITE) == 24


@pytest.mark.parametrize("name", SUITE)
def test_every_baseline_trains_the_model_in_its_turns_with_a_warm_start(name):
    recipe = load_recipe(name, PROFILE)
    assert recipe.name == name
    assert recipe.model.path == "google/gemma-3-270m"
    assert recipe.hardware.device == "cpu"
    assert recipe.context.template == "custom"
    assert recipe.context.custom.close == "<end_of_turn>"
    assert recipe.model.warm_start.steps > 0
    assert recipe.limits.max_context_tokens <= 1024
    assert recipe.algorithm.lr <= 1e-5 and recipe.algorithm.warmup_steps > 0


@pytest.mark.parametrize("name", SUITE)
def test_plan_finds_the_memory_for_every_baseline(name, model, capsys):
    command = ["plan", name, "--trainer", "trl", "--profile", PROFILE, "--json"]
    command += ["--gpus", f"1x{MEMORY_GB}", "--set", f"model.path={model}"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["fits"] is True


def test_the_sums_of_the_evaluation_are_not_trained_on():
    counts = task_overlap(load_recipe("chain-sum", PROFILE, ["seed=100"]))
    assert counts["compared"] == counts["training_tasks"]
    assert counts["seen_in_training"] == 0
    assert counts["distinct"] >= 100
