"""Values of verl's keys that follow from several keys of a recipe, and names that it gives them."""

from __future__ import annotations

from typing import Any

from gem_adapters.key_table import LEFT_OUT
from gem_adapters.native_keys import bare, native_table
from gem_core.runs.install import stack
from gem_core.runs.recipe.recipe import Recipe

PREFIX = "gem_"
"""What the names of gem-core's estimators begin with in verl."""
ATTENTION = stack("verl").attention
"""The native key that chooses the attention of training."""


def has_flash_attention(recipe: Recipe) -> bool:
    """Return whether training uses flash-attention: verl does, unless `ATTENTION` is set."""
    native = {bare(key): value for key, value in native_table(recipe, "verl").items()}
    return "flash" in str(native.get(ATTENTION, "flash_attention_2"))


def is_float32(recipe: Recipe) -> bool:
    """Return whether weights and computation are float32."""
    return recipe.model.dtype == "float32"


def lora_alpha(recipe: Recipe) -> int:
    """Return LoRA's alpha as a whole number."""
    return int(recipe.model.lora.alpha)


def lora_targets(recipe: Recipe) -> list[str] | str:
    """Return the names of the modules with adapters, by default ``all-linear``."""
    return list(recipe.model.lora.targets) or "all-linear"


def estimator(recipe: Recipe) -> str:
    """Return ``gem_<name>``, under which the adapter registers gem-core's estimator in verl."""
    return PREFIX + recipe.algorithm.estimator


def loss_aggregation(recipe: Recipe) -> str:
    """Return verl's name: ``token-mean``, ``seq-mean-token-mean``, ``seq-mean-token-sum-norm``."""
    names = {
        "token": "token-mean",
        "sequence": "seq-mean-token-mean",
        "constant": "seq-mean-token-sum-norm",
    }
    return names[recipe.algorithm.loss_aggregation]


def is_packed(recipe: Recipe) -> bool:
    """Return whether a forward pass takes as many sequences as fit: no micro batch is set."""
    return recipe.batch.micro_batch is None


def most_tokens(recipe: Recipe) -> int:
    """Return the most tokens of a forward pass: by default 16384, or the longest context if more.

    On a CPU, more than a minibatch has.
    """
    if recipe.batch.max_tokens_per_device is not None:
        return recipe.batch.max_tokens_per_device
    if recipe.hardware.device == "cpu":
        return 10**7
    return max(16384, recipe.limits.max_context_tokens or 0)


def max_context(recipe: Recipe) -> Any:
    """Return the longest context, where there is a limit."""
    context = recipe.limits.max_context_tokens
    return LEFT_OUT if context is None else context


def max_model_len(recipe: Recipe) -> Any:
    """Return the longest context, and 1 more with SGLang, of whose context verl keeps one free."""
    context = max_context(recipe)
    return context + 1 if context is not LEFT_OUT and engine(recipe) == "sglang" else context


def save_freq(recipe: Recipe) -> int:
    """Return the training steps between checkpoints; without an interval, those of the run."""
    return recipe.train.save_every or recipe.train.steps


DRAWN_PLUGIN = "gem_verl.drawn_plugin"
"""What workers load where log-probabilities are among the tokens that could be drawn."""


def worker_plugin(recipe: Recipe) -> str:
    """Return the module that verl's workers load."""
    drawn = recipe.sampling.support == "drawn"
    return DRAWN_PLUGIN if drawn else "gem_verl.worker_plugin"


def engine(recipe: Recipe) -> str:
    """Return the engine, by default ``vllm``; on a CPU, the adapter's stand-in."""
    return "vllm" if recipe.hardware.engine == "default" else recipe.hardware.engine


def device(recipe: Recipe) -> str:
    """Return ``cpu`` or ``cuda``."""
    return "cpu" if recipe.hardware.device == "cpu" else "cuda"


def reshards(recipe: Recipe) -> Any:
    """Return whether FSDP2 frees gathered weights after the forward pass: no for "optimizer"."""
    return {"optimizer": False, "full": True}.get(recipe.hardware.sharding, LEFT_OUT)


def offloads_weights(recipe: Recipe) -> bool:
    """Return whether weights wait in the host's memory."""
    return recipe.hardware.offload == "all"


def offloads_optimizer(recipe: Recipe) -> bool:
    """Return whether the optimizer's states wait in the host's memory."""
    return recipe.hardware.offload != "none"


def minibatch_rows(recipe: Recipe, rows: int) -> int:
    """Return the rows of a minibatch of a batch with ``rows`` that train.

    verl takes a size, not a number, and pads the batch to a multiple of it with masked rows. The
    size is rounded up, so that a small batch may have fewer minibatches.
    """
    hardware = recipe.hardware
    ranks = hardware.gpus // hardware.sequence_parallel  # those that get different rows
    unit = ranks * (recipe.batch.micro_batch or 1)
    return unit * -(-rows // (unit * recipe.algorithm.minibatches))
