"""Translate a recipe to fields of ``trl.GRPOConfig``.

`gem_trl.key_table` says which field comes from which recipe key. Translating a
recipe without ``[trainer.trl]`` needs no TRL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gem_adapters.native_keys import (
    check_staleness,
    native_table,
    refuse_keys,
    refuse_native,
    refuse_values,
)
from gem_adapters.rollout_correction import refuse_truncated_sampling
from gem_core.errors import RecipeError, did_you_mean
from gem_core.runs.recipe.files import merge
from gem_core.runs.recipe.recipe import Recipe
from gem_trl.key_table import TABLE
from gem_trl.values import reports_support, uses_vllm
from gem_trl.vllm import allowed_on_cpu

if TYPE_CHECKING:
    from gem_trl._compat import GRPOConfig

APPLIED = TABLE.applied
"""Keys that the adapter itself carries out."""
REFUSED = TABLE.refused
"""Keys that cannot be honoured, and what to do instead."""
TRANSLATED = TABLE.translated
"""Keys that `translate` turns into native ones."""
NATIVE_OWNED = TABLE.owned
"""Native key -> what decides it: refused in ``[trainer.trl]``."""
NATIVE_DEFAULTS = TABLE.defaults
"""Native keys in whose place TRL's own default does not fit; ``[trainer.trl]`` may change them."""
_SAMPLING = ("min_p", "repetition_penalty", "generation_kwargs")
"""Free fields that change the probabilities of tokens."""
_GENERATION = (*_SAMPLING, "cache_implementation", "use_transformers_continuous_batching")
"""Free fields with which TRL itself generates, also on a CPU."""


def translate(recipe: Recipe) -> dict[str, Any]:
    """Return the recipe as fields of ``GRPOConfig``; ``[trainer.trl]`` is merged over them.

    The stop tokens and the run directory are added by `native_config`.

    Raises:
        RecipeError: a key cannot be honoured, or a native key is unknown or not free.
        MissingDependencyError: there are native keys, and no TRL to ask which ones it has.
    """
    refuse_keys(recipe, "TRL", REFUSED)
    _check_values(recipe)
    native = native_keys(recipe)
    table = {key: key.split(".")[0] for key in native_table(recipe, "trl")}
    _refuse_unknown_support(recipe, [k for k, field in table.items() if field in _GENERATION])
    refuse_truncated_sampling(
        recipe, "trl", [k for k, field in table.items() if field in _SAMPLING]
    )
    settings: dict[str, Any] = {}
    for name, value in TABLE.settings(recipe).items():
        field, _, key = name.partition(".")
        settings = merge(settings, {field: {key: value} if key else value})
    return merge(settings, native)


def native_keys(recipe: Recipe) -> dict[str, Any]:
    """Return the table ``[trainer.trl]``.

    Raises:
        RecipeError: ``GRPOConfig`` has no such field, or something else decides it.
        MissingDependencyError: there are native keys, and TRL is not installed.
    """
    native = recipe.trainer.get("trl", {})
    refuse_native(recipe, "trl", NATIVE_OWNED)
    for key in native:
        fields = _grpo_fields()
        if key not in fields:
            hint = did_you_mean(key, fields - NATIVE_OWNED.keys())
            raise RecipeError(f"trainer.trl.{key}: not a field of trl.GRPOConfig.{hint}")
    return native


def native_config(
    recipe: Recipe,
    stop_ids: Sequence[int],
    folder: str | Path,
    native: Mapping[str, Any] | None = None,
) -> GRPOConfig:
    """Return the ``GRPOConfig`` of a run.

    Args:
        recipe: the experiment.
        stop_ids: token ids that end a turn.
        folder: directory of TRL's checkpoints.
        native: what `translate` returned, where it was called before.

    Raises:
        RecipeError: as `translate`.
    """
    from gem_trl._compat import GRPOConfig

    config = translate(recipe) if native is None else dict(native)
    stop = "stop_token_ids" if config["use_vllm"] else "eos_token_id"
    config["generation_kwargs"] = {stop: list(stop_ids), **config["generation_kwargs"]}
    arguments = GRPOConfig(output_dir=str(folder), **config)
    if arguments.n_gpu > 1:  # one process on a machine with more GPUs than the recipe asks for
        arguments._n_gpu = 1  # transformers would train on all of them (`nn.DataParallel`)
    return arguments


# -- what cannot be honoured ----------------------------------------------------------------------


def _check_values(recipe: Recipe) -> None:
    """Refuse values (not whole keys) that TRL cannot honour."""
    engine = recipe.hardware.engine
    on_cpu = recipe.hardware.device == "cpu" and not allowed_on_cpu()
    checks = [
        (
            "hardware.engine hardware.device",
            engine == "sglang" or (on_cpu and engine == "vllm"),
            "use engine = 'hf', or 'vllm' on a GPU",
        ),
        (
            "algorithm.rollout_correction",
            recipe.algorithm.rollout_correction != "none"
            and recipe.hardware.device == "gpu"
            and engine == "hf",
            "transformers' generate reports no log-probabilities; use engine = 'vllm'",
        ),
        check_staleness(recipe),
        (
            "sampling.support hardware.device hardware.engine",
            recipe.sampling.support == "drawn" and not reports_support(recipe),
            'which tokens could be drawn is reported by gem-core\'s engine (device = "cpu") and by '
            "vLLM inside the trainer, on one GPU, with sampling.top_k; use one of them, or "
            'support = "all"',
        ),
        (
            "sampling.staleness model.dtype",
            recipe.sampling.staleness and recipe.model.dtype != "float32",
            "its autocast is a part of the model that it trains, and old weights would sample "
            "without it; use model.dtype = 'float32'",
        ),
        (
            "hardware.sharding",
            recipe.hardware.sharding not in ("default", "none"),
            "each GPU holds the whole model, gradients and optimizer states; use LoRA "
            "(model.lora.rank), or a trainer that shards, such as verl or OpenRLHF",
        ),
        *_engine_parallelism(recipe),
        ("batch.episodes", recipe.batch.episodes < 2, "it needs at least 2 episodes per step"),
    ]
    refuse_values(recipe, "TRL", checks)


def _refuse_unknown_support(recipe: Recipe, native: Sequence[str]) -> None:
    """Refuse native keys by which TRL samples otherwise than the recipe's ``[sampling]`` says."""
    if native and recipe.sampling.staleness:
        raise RecipeError(
            f"trainer.trl.{native[0]}: TRL then samples by itself, with the newest weights only. "
            "Leave it out, or set sampling.staleness = 0."
        )
    if native and recipe.sampling.support == "drawn":
        raise RecipeError(
            f'trainer.trl.{native[0]}: with sampling.support = "drawn" tokens are drawn as the '
            'other keys of [sampling] say. Leave it out, or set sampling.support = "all".'
        )


def _engine_parallelism(recipe: Recipe) -> list[tuple[str, object, str]]:
    key = "hardware.engine_tensor_parallel"
    size = recipe.hardware.engine_tensor_parallel
    server = recipe.trainer.get("trl", {}).get("vllm_mode") == "server"
    return [
        (key, size > 1 and not uses_vllm(recipe), "it is vLLM's; use engine = 'vllm'"),
        (key, size > 1 and server, "a server has it from `vllm serve --tensor-parallel-size`"),
        (
            f"{key} hardware.gpus_per_node",
            recipe.hardware.gpus_per_node % size,
            "the GPUs of a machine are divided into engines of that size",
        ),
    ]


def _grpo_fields() -> set[str]:
    from dataclasses import fields

    from gem_trl._compat import GRPOConfig

    return {field.name for field in fields(GRPOConfig)}
