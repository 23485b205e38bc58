"""Single values that OpenRLHF cannot do, and native flags that would do nothing in a recipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from gem_adapters.estimate import needs_critic
from gem_adapters.native_keys import check_staleness, refuse_values
from gem_core.errors import RecipeError
from gem_core.runs.recipe.files import flatten
from gem_core.runs.recipe.recipe import Recipe
from gem_openrlhf import values


def check_values(recipe: Recipe) -> None:
    """Refuse values (not whole keys) that OpenRLHF cannot do."""
    if recipe.context.history != "append":
        refuse_counted_tokens(recipe)
    checks = [
        *_support_checks(recipe),
        *_version_checks(recipe),
        *_lora_checks(recipe),
        *_batch_checks(recipe),
        *_hardware_checks(recipe),
    ]
    refuse_values(recipe, "openrlhf", checks)


def refuse_counted_tokens(recipe: Recipe) -> None:
    """Refuse forward passes by tokens; for recipes whose episodes may have several rows.

    Raises:
        RecipeError: the recipe has them.
    """
    check = (
        "batch.max_tokens_per_device context.history context.template",
        recipe.batch.max_tokens_per_device is not None,
        "where an episode has several rows, its passes are counted by rows; set batch.micro_batch "
        "instead",
    )
    refuse_values(recipe, "openrlhf", [check])


def _support_checks(recipe: Recipe) -> Iterator[tuple[str, object, str]]:
    hardware = recipe.hardware
    yield (
        "sampling.support hardware.device hardware.engine",
        recipe.sampling.support == "drawn"
        and (hardware.device == "gpu" or hardware.engine == "vllm"),
        'vLLM\'s answer does not say which tokens could be drawn; use support = "all", or '
        'device = "cpu", where gem-core\'s engine does',
    )


def _version_checks(recipe: Recipe) -> Iterator[tuple[str, object, str]]:
    native = flatten(recipe.trainer.get("openrlhf", {}))
    yield check_staleness(recipe)
    waiting = int(native.get("train.async_queue_size", 1))
    yield (
        "sampling.staleness",
        values.is_async(recipe) and 0 < recipe.sampling.staleness < waiting,
        f"in asynchronous mode its engine is up to {waiting} steps ahead (async_queue_size); use "
        "at least that, or 0 for whatever weights the engine has",
    )


def _lora_checks(recipe: Recipe) -> Iterator[tuple[str, object, str]]:
    lora = recipe.model.lora
    yield (
        "model.lora.alpha",
        lora.rank and lora.alpha != int(lora.alpha),
        "OpenRLHF's flag takes whole numbers",
    )
    yield (
        "model.lora.rank algorithm.estimator",
        lora.rank and needs_critic(recipe),
        "its critic would get adapters, too, and its value head would stay at zero",
    )
    yield (
        "model.lora.rank hardware.sharding",
        lora.rank and recipe.hardware.sharding == "full",
        "the engine gets merged weights, which need whole ones; use sharding = 'optimizer'",
    )


def _batch_checks(recipe: Recipe) -> Iterator[tuple[str, object, str]]:
    yield (
        "batch.max_tokens_per_device limits.max_context_tokens",
        values.longest_may_not_fit(recipe),
        "the longest episode must fit",
    )


def _hardware_checks(recipe: Recipe) -> Iterator[tuple[str, object, str]]:
    hardware = recipe.hardware
    gpu = hardware.device == "gpu"
    engines = ("default", "vllm") if gpu else ("default", "hf", "vllm")
    generating = values.engine_gpus(recipe)
    yield (
        "hardware.offload",
        hardware.offload == "all",
        "it moves the optimizer states only; use offload = 'optimizer'",
    )
    yield (
        "hardware.offload hardware.sharding",
        hardware.offload != "none" and hardware.sharding == "none",
        "only states that are divided can be moved; use sharding = 'optimizer'",
    )
    yield (
        "hardware.sharding model.dtype",
        hardware.sharding == "none" and recipe.model.dtype == "float32",
        "DeepSpeed reports no gradient norm there; use sharding = 'optimizer'",
    )
    yield (
        "hardware.engine_tensor_parallel hardware.device",
        hardware.engine_tensor_parallel > 1 and not gpu,
        "the engine of a CPU runs in one process",
    )
    yield (
        "hardware.engine_tensor_parallel hardware.gpus_per_node",
        gpu and generating % hardware.engine_tensor_parallel,
        f"engines must fill the {generating} GPUs of a machine that generate",
    )
    yield (
        "model.dtype hardware.device",
        gpu and recipe.model.dtype == "float32",
        "use model.dtype = 'bfloat16'",
    )
    yield (
        "model.dtype hardware.engine",
        not gpu and hardware.engine == "vllm" and recipe.model.dtype == "float32",
        "OpenRLHF's vLLM computes in bfloat16; use model.dtype = 'bfloat16'",
    )
    yield (
        "hardware.engine hardware.device",
        hardware.engine not in engines,
        f"use one of the engines {engines}",
    )
    yield (
        "hardware.gpus_per_node",
        gpu and values.is_async(recipe) and hardware.gpus_per_node == 1,
        "training and generation need a GPU each in async mode",
    )


# -- native flags that would do nothing -----------------------------------------------------------


class FlagNeed(NamedTuple):
    """What native flags need to have an effect.

    Attributes:
        flags: their names, separated by spaces.
        met: whether a recipe and its native flags have it.
        what: names it to the user.
    """

    flags: str
    met: Callable[[Recipe, Mapping[str, Any]], bool]
    what: str


NEEDS = (
    FlagNeed(
        "critic.adam.eps critic.freezing_steps critic.save_value_network ds.value_head_prefix "
        "train.colocate_critic_reward",
        lambda recipe, native: needs_critic(recipe),
        "a critic: algorithm.estimator = 'gae'",
    ),
    FlagNeed(
        "algo.kl.estimator algo.kl.unbiased_gradient ref.offload train.colocate_actor_ref",
        lambda recipe, native: recipe.algorithm.kl_coef > 0,
        "a reference model: algorithm.kl_coef > 0",
    ),
    FlagNeed(
        "algo.kl.unbiased_gradient",
        lambda recipe, native: recipe.algorithm.kl_in == "loss",
        "algorithm.kl_in = 'loss'",
    ),
    FlagNeed(
        "train.ema_beta",
        lambda recipe, native: bool(native.get("train.enable_ema")),
        "train.enable_ema",
    ),
    FlagNeed(
        "train.enable_ema",
        lambda recipe, native: not recipe.model.lora.rank,
        "all weights to be trained: model.lora.rank = 0",
    ),
    FlagNeed(
        "train.async_queue_size train.partial_rollout_enable",
        lambda recipe, native: values.is_async(recipe),
        "train.async_enable",
    ),
    FlagNeed(
        "ds.lora.dropout",
        lambda recipe, native: recipe.model.lora.rank > 0,
        "adapters: model.lora.rank > 0",
    ),
    FlagNeed(
        "ds.zpg",
        lambda recipe, native: recipe.hardware.sharding == "full",
        "divided weights: hardware.sharding = 'full'",
    ),
    FlagNeed(
        "actor.gradient_checkpointing_reentrant",
        lambda recipe, native: recipe.model.gradient_checkpointing,
        "model.gradient_checkpointing",
    ),
    FlagNeed(
        "ds.enable_sleep",
        lambda recipe, native: not native["ds.enable_sleep"] or recipe.hardware.sharding != "none",
        "divided optimizer states: hardware.sharding = 'optimizer'",
    ),
    FlagNeed(
        "vllm.enable_sleep",
        lambda recipe, native: not native["vllm.enable_sleep"] or _colocated(recipe, native),
        "training and generation to take turns: train.colocate_all, not train.async_enable",
    ),
)
"""Free native flags that do nothing without something else."""


def check_native(recipe: Recipe, native: Mapping[str, Any]) -> None:
    """Refuse native flags that would do nothing.

    Args:
        recipe: the experiment.
        native: ``[trainer.openrlhf]`` by dotted name.

    Raises:
        RecipeError: a flag lacks what it needs.
    """
    for need in NEEDS:
        for flag in need.flags.split():
            if flag in native and not need.met(recipe, native):
                raise RecipeError(
                    f"trainer.openrlhf.{flag}: it would do nothing, it needs {need.what}."
                )


def _colocated(recipe: Recipe, native: Mapping[str, Any]) -> bool:
    by_default = recipe.hardware.device == "gpu"
    return bool(native.get("train.colocate_all", by_default)) and not values.is_async(recipe)
