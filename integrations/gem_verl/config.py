"""Recipe -> hydra overrides of ``verl.trainer.main_ppo``.

`gem_verl.key_table` says which native key comes from which recipe key.
"""

from __future__ import annotations

import json
from typing import Any

from gem_adapters.estimate import needs_critic
from gem_adapters.hydra import override, refuse_unknown
from gem_adapters.native_keys import (
    bare,
    check_staleness,
    native_table,
    refuse_keys,
    refuse_native,
    refuse_values,
)
from gem_adapters.rollout_correction import refuse_truncated_sampling
from gem_core.errors import RecipeError
from gem_core.runs.recipe.recipe import Recipe
from gem_verl.key_table import TABLE
from gem_verl.native import native_keys
from gem_verl.values import ATTENTION, has_flash_attention, is_float32

APPLIED = TABLE.applied
"""Carried out by the adapter in verl's processes, so there is no native key."""
REFUSED = TABLE.refused
"""Keys that cannot be honoured, and what to do instead."""
TRANSLATED = TABLE.translated
"""Keys that `translate` turns into native ones."""
NATIVE_OWNED = TABLE.owned
"""Native key -> what decides it; refused in ``[trainer.verl]``."""
NATIVE_DEFAULTS = TABLE.defaults
"""Defaults of verl that do not fit, which ``[trainer.verl]`` may change."""


def translate(recipe: Recipe) -> list[str]:
    """Return ``key=value`` overrides, the native keys of ``[trainer.verl]`` last.

    The model's path, the run directory and the recipe itself are added by the launcher.

    Raises:
        RecipeError: verl cannot honour a key; the message names it.
    """
    settings = TABLE.fixed | recipe_settings(recipe)
    return [override(key, value) for key, value in settings.items()]


def recipe_settings(recipe: Recipe) -> dict[str, Any]:
    """Return the native keys and values of everything but what the adapter needs fixed.

    Raises:
        RecipeError: verl cannot honour a key; the message names it.
    """
    _refuse(recipe)
    settings = {k: v for k, v in TABLE.settings(recipe).items() if k not in TABLE.fixed}
    if recipe.hardware.device == "cpu":
        from gem_verl.cpu import harness

        settings |= harness.settings(recipe)
    native = native_table(recipe, "verl")
    if native:
        refuse_unknown(recipe, "verl", native_keys())
    overridden = {bare(key) for key in native}
    kept = {key: value for key, value in settings.items() if bare(key) not in overridden}
    return kept | native


def payload(recipe: Recipe) -> str:
    """Return the recipe as text without what hydra or OmegaConf interpret: quotes and dollars."""
    return json.dumps(recipe.to_dict()).replace("'", "\\u0027").replace("$", "\\u0024")


def _refuse(recipe: Recipe) -> None:
    hardware = recipe.hardware
    context = recipe.limits.max_context_tokens
    most = recipe.batch.max_tokens_per_device
    padded = hardware.device == "gpu" and not has_flash_attention(recipe)
    drawn = recipe.sampling.support == "drawn"
    refuse_keys(recipe, "verl", REFUSED)
    refuse_values(recipe, "verl", [
        check_staleness(recipe),
        ("sampling.support hardware.device hardware.engine",
         drawn and (hardware.device == "gpu" or hardware.engine not in ("default", "hf")),
         "its engine's answer does not say which tokens could be drawn; use support = \"all\", or "
         'device = "cpu" without an engine, where gem-core\'s does'),
        ("sampling.support hardware.sequence_parallel",
         drawn and hardware.sequence_parallel > 1,
         "each rank has a part of the packed tokens; leave the second 1"),
        ("algorithm.lr_schedule", recipe.algorithm.lr_schedule == "linear",
         "it has constant and cosine"),
        ("train.steps", recipe.train.steps < 1, "it needs at least one step"),
        ("hardware.engine hardware.device",
         hardware.engine == "hf" and hardware.device == "gpu", "use vllm or sglang"),
        ("model.lora.alpha", recipe.model.lora.alpha % 1, "it takes a whole number"),
        ("batch.max_tokens_per_device limits.max_context_tokens",
         most and context and most * hardware.sequence_parallel < context,
         "a whole sequence must fit; raise the first, or hardware.sequence_parallel"),
        ("hardware.sharding", hardware.sharding == "none",
         'its FSDP2 engine divides the optimizer states at least; use "optimizer" or "full"'),
        ("hardware.sequence_parallel hardware.gpus_per_node",
         hardware.gpus % hardware.sequence_parallel, "it must divide the number of GPUs"),
        ("hardware.engine_tensor_parallel hardware.gpus_per_node",
         hardware.gpus % hardware.engine_tensor_parallel, "it must divide the number of GPUs"),
        ("model.dtype hardware.device",
         hardware.device == "gpu" and has_flash_attention(recipe) and is_float32(recipe),
         f"flash-attention has no float32; use 'bfloat16', or set {ATTENTION} to sdpa"),
        ("algorithm.estimator", padded and needs_critic(recipe),
         f"verl loads a critic with flash-attention and no other; leave {ATTENTION} out"),
        ("hardware.sequence_parallel", padded and hardware.sequence_parallel > 1,
         f"verl's needs packed rows, and so flash-attention; leave {ATTENTION} out, or this"),
        ("batch.micro_batch", padded and recipe.batch.micro_batch is None,
         f"with {ATTENTION} rows are padded, and verl counts their tokens without padding; set "
         "the rows of a forward pass"),
    ])  # fmt: skip
    refuse_native(recipe, "verl", NATIVE_OWNED)
    refuse_truncated_sampling(recipe, "verl")
    if drawn:
        _refuse_without_logits(recipe)


_WITHOUT_LOGITS = ("use_fused_kernels", "use_prefix_grouper", "strategy")
"""Last parts of native keys with which verl's log-probabilities are made elsewhere."""


def _refuse_without_logits(recipe: Recipe) -> None:
    """Refuse native keys with which a restriction of the engine's logits would do nothing."""
    for key, value in native_table(recipe, "verl").items():
        stock = (False, "fsdp", "fsdp2")
        if bare(key).split(".")[-1] in _WITHOUT_LOGITS and value not in stock:
            raise RecipeError(
                f'trainer.verl.{key}: with sampling.support = "drawn" verl must make '
                "log-probabilities of the logits of its FSDP engine. Leave it out, or set "
                'sampling.support = "all".'
            )
