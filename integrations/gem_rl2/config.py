"""Recipe -> hydra overrides of RL2's ``ppo`` configuration, in the names of the installed API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gem_adapters.hydra import followers, override, refuse_unknown
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
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.files import flatten
from gem_core.runs.recipe.recipe import Recipe, TrainConfig
from gem_core.training.tiny import model_source
from gem_rl2._compat import NEWER
from gem_rl2.key_table import NATIVE_FREE, TABLE, TRAIN
from gem_rl2.native import compose_native, native_keys
from gem_rl2.newer import key_names

APPLIED = TABLE.applied
"""Keys that the adapter carries out beside RL2's configuration, or that change the value of another
one's native key."""
REFUSED = TABLE.refused
"""Keys that cannot be honoured, and what to do instead."""
TRANSLATED = TABLE.translated
"""Keys that `translate` turns into native ones, or refuses by value."""
NATIVE_DEFAULTS = TABLE.defaults
"""What suits better than RL2's own defaults; ``[trainer.rl2]`` may set it otherwise."""


def translate(
    recipe: Recipe, *, newer: bool = NEWER, settings: Mapping[str, Any] | None = None
) -> list[str]:
    """Return hydra overrides; those of ``[trainer.rl2]`` come last.

    Args:
        recipe: the experiment.
        newer: under the newer API's names instead of 0.0.2's.
        settings: what belongs to a run rather than to the recipe (paths).

    Raises:
        RecipeError: a key that RL2 cannot honour, or a native key that something else decides or
            that RL2 does not have.
    """
    _refuse(recipe, newer)
    keys = TABLE.settings(recipe)
    if newer:
        keys = key_names.to_newer(keys)
    keys |= settings or {}
    keys |= flatten(recipe.trainer.get("rl2", {}))
    return [override(key, value) for key, value in keys.items()]


def settings_of(run: RunDir, resume: bool = False) -> dict[str, Any]:
    """Overrides for what belongs to a run."""
    return {
        "actor.model_name": model_source(run.recipe),
        "trainer.save_dir": str(run.checkpoints.resolve()),
        "trainer.load_ckpt_from": "latest" if resume else None,
    }


def native_config(recipe: Recipe, settings: Mapping[str, Any]) -> Any:
    """RL2's own configuration, composed by hydra from the recipe and a run's ``settings``."""
    return compose_native(translate(recipe, settings=settings))


def native_owned(newer: bool) -> dict[str, str]:
    """Native keys that something else decides -> what decides them.

    They are those of the table, and what follows one of them: in RL2's configuration a critic's
    ``${actor.scheduler}``, for one.

    Args:
        newer: in the newer API's names. What follows them in RL2's own configuration is included
            where that API is installed.
    """
    owned = TABLE.owned
    configuration = dict(native_keys()) if newer == NEWER else {}
    if newer:
        owned = {key_names.newer_name(native): reason for native, reason in owned.items()}
        owned |= key_names.OWNED
        configuration |= {f"critic.{name}": f"${{actor.{name}}}" for name in key_names.CRITIC}
    owned = owned | followers(owned, configuration)
    return {native: reason for native, reason in owned.items() if native not in NATIVE_FREE}


def _refuse(recipe: Recipe, newer: bool) -> None:
    algorithm = recipe.algorithm
    hardware = recipe.hardware
    engines = ("default", "hf") if hardware.device == "cpu" else ("default", "sglang")
    checks = [
        check_staleness(recipe),
        (
            "sampling.support hardware.device",
            recipe.sampling.support == "drawn" and hardware.device == "gpu",
            'SGLang\'s answer does not say which tokens could be drawn; use support = "all", or '
            'device = "cpu", where gem-core\'s engine does',
        ),
        (
            "algorithm.clip_high",
            algorithm.clip_low != algorithm.clip_high,
            "set algorithm.clip_low to the same",
        ),
        (
            "hardware.engine",
            hardware.engine not in engines,
            f"on this device: {engines}",
        ),
        (
            "model.dtype hardware.device",
            hardware.device == "gpu" and recipe.model.dtype == "float32",
            "its attention on a GPU, flash-attention, has no float32; use 'bfloat16'",
        ),
        (
            "limits.max_context_tokens",
            not recipe.limits.max_context_tokens,
            "it packs sequences by length and must know the longest; set it",
        ),
        (
            "batch.max_tokens_per_device limits.max_context_tokens",
            recipe.batch.max_tokens_per_device is not None
            and recipe.batch.max_tokens_per_device < (recipe.limits.max_context_tokens or 0),
            "the longest sequence must fit into one pass",
        ),
    ]
    refuse_keys(recipe, "RL2", REFUSED)
    refuse_values(recipe, "RL2", [*checks, *(_newer_checks(recipe) if newer else [])])
    refuse_native(recipe, "rl2", NATIVE_OWNED if newer == NEWER else native_owned(newer))
    if newer == NEWER:
        refuse_unknown(recipe, "rl2", native_keys())
    _refuse_sampling_keys(recipe, newer)


def _refuse_sampling_keys(recipe: Recipe, newer: bool) -> None:
    """Refuse native keys of the engine that change probabilities which the loss must know."""
    table = "rollout.train.sampling_params." if newer else f"{TRAIN}."
    given = map(bare, native_table(recipe, "rl2"))
    sampling = [key for key in given if key.startswith(table)]
    refuse_truncated_sampling(recipe, "rl2", sampling)
    if sampling and recipe.sampling.support == "drawn":
        raise RecipeError(
            f'trainer.rl2.{sampling[0]}: with sampling.support = "drawn" the engine of gem-core '
            'samples, which has no such key. Leave it out, or set sampling.support = "all".'
        )


def _newer_checks(recipe: Recipe) -> list[tuple[str, object, str]]:
    """What the newer API lacks."""
    algorithm = recipe.algorithm
    hardware = recipe.hardware
    return [
        (
            "algorithm.epochs",
            algorithm.epochs > 1,
            "the newer API has one pass; set it to 1",
        ),
        (
            "algorithm.rollout_correction",
            algorithm.rollout_correction != "none",
            "the adapter corrects in 0.0.2 alone",
        ),
        (
            "train.save_minutes",
            recipe.train.save_minutes not in (0, TrainConfig().save_minutes),
            "the newer API saves by steps, and cannot resume; set it to 0",
        ),
        (
            "hardware.sequence_parallel",
            hardware.sequence_parallel > 1,
            "the adapter knows the key of 0.0.2 alone; leave it 1",
        ),
        (
            "hardware.tensor_parallel",
            hardware.tensor_parallel > 1,
            "the adapter repairs that of 0.0.2 alone; leave it 1",
        ),
        (
            "sampling.support",
            recipe.sampling.support == "drawn",
            "the adapter restricts the logits in 0.0.2 alone; leave it 'all'",
        ),
    ]


NATIVE_OWNED = native_owned(NEWER)
"""Native keys of the installed API that something else decides -> what decides them."""
