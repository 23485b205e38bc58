"""Values of ``GRPOConfig``'s fields that follow from several keys of a recipe."""

from __future__ import annotations

from typing import Any

from gem_adapters.key_table import LEFT_OUT
from gem_core.runs.recipe.recipe import Recipe
from gem_trl.batching import batching, updates_per_step


def micro_batch(recipe: Recipe) -> int:
    """Return the sequences per forward pass of a process."""
    return batching(recipe).micro


def accumulation(recipe: Recipe) -> int:
    """Return the forward passes per optimizer step."""
    return batching(recipe).accumulation


def passes_per_batch(recipe: Recipe) -> int:
    """Return the forward passes per pass over the batch: those of a minibatch times minibatches."""
    return batching(recipe).generation


def max_steps(recipe: Recipe) -> int:
    """Return the optimizer steps of the run: training steps x epochs x minibatches."""
    return recipe.train.steps * updates_per_step(recipe)


def warmup_steps(recipe: Recipe) -> int:
    """Return the optimizer steps of the warm-up: training steps x epochs x minibatches."""
    return recipe.algorithm.warmup_steps * updates_per_step(recipe)


def save_steps(recipe: Recipe) -> int:
    """Return the optimizer steps between checkpoints; without an interval, those of the run."""
    interval = recipe.train.save_every or max(recipe.train.steps, 1)
    return interval * updates_per_step(recipe)


def loss_type(recipe: Recipe) -> str:
    """Return ``dapo`` for ``token``, ``grpo`` for ``sequence``, ``dr_grpo`` for ``constant``."""
    names = {"token": "dapo", "sequence": "grpo", "constant": "dr_grpo"}
    return names[recipe.algorithm.loss_aggregation]


def loss_divisor(recipe: Recipe) -> int:
    """Return the divisor of ``dr_grpo``: the constant, or the most tokens of a turn."""
    return recipe.algorithm.loss_constant or recipe.limits.max_tokens_per_turn


def uses_vllm(recipe: Recipe) -> bool:
    """Return whether vLLM samples; by default on GPUs. On a CPU only tests may ask for it."""
    default = "vllm" if recipe.hardware.device == "gpu" else "hf"
    engine = recipe.hardware.engine
    return (default if engine == "default" else engine) == "vllm"


def reports_support(recipe: Recipe) -> bool:
    """Return whether the engine can report which tokens could be drawn.

    vLLM does where it is asked for by its own engine, not by a server, and with a top-k only, which
    bounds what it reports.
    """
    if not uses_vllm(recipe):
        return recipe.hardware.device == "cpu"
    server = recipe.trainer.get("trl", {}).get("vllm_mode") == "server"
    alone = recipe.hardware.engine_tensor_parallel == 1
    return not server and alone and recipe.sampling.top_k >= 1


def engine_sleeps(recipe: Recipe) -> Any:
    """Return whether vLLM sleeps while the model is trained: on the GPUs that train it."""
    server = recipe.trainer.get("trl", {}).get("vllm_mode") == "server"
    sleeps = recipe.hardware.device == "gpu" and uses_vllm(recipe) and not server
    return True if sleeps else LEFT_OUT


def device_map(recipe: Recipe) -> str | None:
    """Return where the model goes: on a GPU machine to the process's first GPU, whole.

    TRL's own is ``"auto"``, which divides the model among all GPUs that one process sees. Where
    there are several processes TRL sets ``None``, and each moves its model to its own GPU.
    """
    return "cuda:0" if recipe.hardware.device == "gpu" else None


def corrects_rollout(recipe: Recipe) -> bool:
    """Return whether vLLM samples and the correction is ``tis``."""
    return uses_vllm(recipe) and recipe.algorithm.rollout_correction == "tis"


def model_length(recipe: Recipe) -> int | None:
    """Return the longest sequence in vLLM: the longest prompt, and a turn after it."""
    limits = recipe.limits
    if not uses_vllm(recipe) or limits.max_context_tokens is None:
        return None
    return limits.max_context_tokens + limits.max_tokens_per_turn


def turn_tokens_of_vllm(recipe: Recipe) -> Any:
    """Return the most tokens of a turn, with vLLM."""
    return recipe.limits.max_tokens_per_turn if uses_vllm(recipe) else LEFT_OUT


def turn_tokens_of_transformers(recipe: Recipe) -> Any:
    """Return the most tokens of a turn, with transformers."""
    return LEFT_OUT if uses_vllm(recipe) else recipe.limits.max_tokens_per_turn
