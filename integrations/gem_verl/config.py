"""Recipe -> hydra overrides of ``verl.trainer.main_ppo``.

`gem_verl.tables` says which native key comes from which recipe key; `NATIVE_OWNED` is made of it.
"""

from __future__ import annotations

import json
from typing import Any

from gem_adapters.hydra import override, refuse_unknown
from gem_adapters.native_keys import (
    bare,
    core_keys,
    native_table,
    refuse_keys,
    refuse_native,
    refuse_values,
)
from gem_adapters.rollout_correction import refuse_truncated_sampling
from gem_core.runs.recipe.recipe import Recipe, get_key
from gem_verl.native import native_keys
from gem_verl.owned import OF_THE_RUN, REPLACED, UNSOUND
from gem_verl.tables import COMPUTED, DIRECT, NATIVE_DEFAULTS, WIRING

__all__ = [
    "APPLIED",
    "NATIVE_DEFAULTS",
    "NATIVE_OWNED",
    "REFUSED",
    "TRANSLATED",
    "WIRING",
    "payload",
    "recipe_settings",
    "translate",
]

REFUSED: dict[str, str] = {
    "algorithm.kl_in": (
        "verl adds a KL in the reward to single tokens, where it would count as reward of turns. "
        'Use algorithm.kl_in = "loss".'
    ),
    "hardware.tensor_parallel": (
        "its FSDP2 engine shares weights, not layers; set hardware.sequence_parallel or leave it 1."
    ),
}
"""Keys that cannot be honoured, and what to do instead."""
APPLIED = frozenset(
    {"batch.group_size", "eval.inside_episodes", "train.log_episodes", "train.save_minutes"}
)
"""Carried out by the adapter in verl's processes, so there is no native key."""
_DECIDING = {*DIRECT, *(key for key, _, _ in COMPUTED), "algorithm.options"}
TRANSLATED = frozenset(_DECIDING) - core_keys()
"""Keys that `translate` turns into native ones."""


def _native_owned() -> dict[str, str]:
    owned = {"algorithm.gem_options": "set algorithm.options instead"}
    for key, names in DIRECT.items():
        owned |= dict.fromkeys(names, f"set {key} instead")
    for key, names, _ in COMPUTED:
        owned |= {bare(name): f"set {key} instead" for name in names}
    for name, value in WIRING.items():
        owned[name] = f"the adapter needs {value!r} there"
    for key, rivals in REPLACED.items():
        owned |= dict.fromkeys(rivals.split(), f"set {key} instead")
    return owned | OF_THE_RUN | UNSOUND


NATIVE_OWNED = _native_owned()
"""Native key -> what decides it."""


def translate(recipe: Recipe) -> list[str]:
    """Return ``key=value`` overrides, the native keys of ``[trainer.verl]`` last.

    The model's path, the run directory and the recipe itself are added by the launcher.

    Raises:
        RecipeError: verl cannot honour a key; the message names it.
    """
    settings = WIRING | recipe_settings(recipe)
    return [override(key, value) for key, value in settings.items()]


def recipe_settings(recipe: Recipe) -> dict[str, Any]:
    """Return the native keys and values of everything but the `WIRING`.

    Raises:
        RecipeError: verl cannot honour a key; the message names it.
    """
    _refuse(recipe)
    settings = {name: get_key(recipe, key) for key, names in DIRECT.items() for name in names}
    for _, names, value in COMPUTED:
        settings |= _known(dict.fromkeys(names, value(recipe)))
    for name, option in recipe.algorithm.options.items():
        settings[f"+algorithm.gem_options.{name}"] = option
    for name, default in NATIVE_DEFAULTS.items():
        settings |= _known({name: default(recipe) if callable(default) else default})
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


def _known(settings: dict[str, Any]) -> dict[str, Any]:
    """Leave out values that are None, for which verl's own stay."""
    return {name: value for name, value in settings.items() if value is not None}


def _refuse(recipe: Recipe) -> None:
    hardware = recipe.hardware
    context = recipe.limits.max_context_tokens
    most = recipe.batch.max_tokens_per_device
    refuse_keys(recipe, "verl", REFUSED)
    refuse_values(recipe, "verl", [
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
    ])  # fmt: skip
    refuse_native(recipe, "verl", NATIVE_OWNED)
    refuse_truncated_sampling(recipe, "verl")
