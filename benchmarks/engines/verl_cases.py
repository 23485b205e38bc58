"""verl with real vLLM through ``main_ppo``, and beside it the stand-in; see `run.py`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from common import (
    BASELINE,
    KEYS,
    SAME_WEIGHTS,
    is_gemma,
    train_case,
    train_gemma,
    write_result,
)
from verl_weights import measure

from gem_core.runs.recipe.load import load_recipe, recipe_from_dict
from gem_core.runs.recipe.recipe import Recipe
from gem_core.training.tiny import model_path

ROLLOUT = "actor_rollout_ref.rollout"
BUCKET = f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes"
VLLM: dict[str, Any] = {
    f"{ROLLOUT}.enforce_eager": True,
    f"{ROLLOUT}.free_cache_engine": False,  # vLLM does not sleep on a CPU
    f"+{ROLLOUT}.enable_sleep_mode": False,
    f"{ROLLOUT}.max_num_seqs": 64,
    f"{ROLLOUT}.max_num_batched_tokens": 2048,
    f"{ROLLOUT}.gpu_memory_utilization": 0.2,
    BUCKET: 16,  # of shared memory
}
"""What vLLM needs on a CPU."""
GEMMA = {**VLLM, BUCKET: 512, f"{ROLLOUT}.max_num_batched_tokens": 8192}
"""The pretrained model in one bucket: verl sends its tied weight by both names, and vLLM 0.29 takes
``lm_head.weight`` only with the embeddings. Otherwise it fails, and verl waits for it for ever.
Tokens for 64 prompts at once: with a request's seed, a prompt in two parts ends vLLM's engine on a
CPU ("CPU Generator does not use offset")."""
CASES: dict[str, tuple[str, ...]] = {
    "verl-vllm": ("hardware.engine=vllm",),
    "verl-lora": ("hardware.engine=vllm", "model.lora.rank=8", "algorithm.lr=0.004"),
    "verl-standin": (),
}
"""Case -> overrides of the tiny profile."""


def recipe_of(name: str, steps: int) -> Recipe:
    """Return the recipe of a case."""
    keys = (*KEYS, *CASES[name], f"train.steps={steps}", "batch.episodes=96")
    data = load_recipe(BASELINE, "tiny", (*keys, "train.log_episodes=96")).to_dict()
    if data["hardware"]["engine"] == "vllm":
        data["trainer"] = {"verl": VLLM}
    return recipe_from_dict(data)


def trained(name: str, folder: Path, steps: int) -> None:
    """Train in the way of a case, evaluated before and after, and write the figures.

    Raises:
        AssertionError: the engine's log-probabilities are not the trainer's, the policy did not
            learn in 20 steps or more, or a turn ended otherwise than by its end or its cap.
    """
    recipe = recipe_of(name, steps)
    train_case("verl", name, recipe, folder)


def weights(name: str) -> None:
    """Measure verl's path of weights alone, and write the figures.

    Raises:
        AssertionError: the engine has other weights than it was sent, or a prefix cache that was
            kept did not show.
    """
    recipe = load_recipe(BASELINE, "tiny", KEYS)
    figures = measure(model_path(recipe))
    print(write_result(name, recipe.seed, {"case": name, **figures}))
    assert figures["initial"] < SAME_WEIGHTS, figures
    for sync in figures["syncs"]:
        assert sync["fresh_cache"] < SAME_WEIGHTS < sync["stale_cache"], sync


if __name__ == "__main__":
    if sys.argv[1] == "verl-weights":
        weights(sys.argv[1])
    elif is_gemma(sys.argv[1]):
        train_gemma("verl", sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), (), GEMMA)
    else:
        trained(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
