"""The model that training starts from: the tiny one, built once, or another of its recipe."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from gem_core.errors import RecipeError
from gem_core.policies.models.source import reading_model, require_hf
from gem_core.runs.cache import cached_folder, digest
from gem_core.runs.recipe.recipe import Recipe, TinyConfig
from gem_core.runs.splits import RunEnvs, run_envs
from gem_core.training.warm_start.pretrained import warm_started
from gem_core.training.warm_start.settings import play_settings

BUILD = 1
"""Increase it when the same settings give different weights."""


def model_path(recipe: Recipe, envs: RunEnvs | None = None) -> str:
    """Return the argument of ``from_pretrained``: the recipe's model, or the tiny one's directory.

    With ``model.path = "tiny"``, the model is built if it is not in the cache, which takes about
    twenty seconds; other processes wait for the one that builds it.

    Args:
        recipe: the experiment.
        envs: its environments, where they are known (`gem_core.runs.splits.run_envs`).

    Raises:
        MissingDependencyError: torch, transformers or tokenizers is missing.
        RecipeError: the context is longer than the tiny model's positions.
        GemError: an environment of the warm start failed.
    """
    if recipe.model.path != "tiny":
        return warm_started(recipe, envs)
    _check(recipe.model.tiny, recipe.limits.max_context_tokens)
    settings = _settings(recipe, run_envs(recipe) if envs is None else envs)
    return str(cached_folder("tiny", settings, lambda folder: _build(recipe, settings, folder)))


def model_source(recipe: Recipe, path: str | None = None) -> str:
    """Return what a trainer without a key for a revision loads the model from.

    Args:
        recipe: the experiment.
        path: its `model_path`, where it is known.

    Returns:
        `model_path`; with ``model.revision`` the directory of that revision of a Hugging Face id,
        which is downloaded to the local cache, or found there. On several nodes the cache must be
        on a disk that they share.
    """
    name = path or model_path(recipe)
    revision = recipe.model.revision
    if revision is None or Path(name).is_dir():
        return name
    with reading_model(name):
        from huggingface_hub import snapshot_download

        folder: str = snapshot_download(name, revision=revision)
    return folder


def _check(config: TinyConfig, context: int | None) -> None:
    if context is None or context > config.max_positions:
        raise RecipeError(
            f"limits.max_context_tokens: the tiny model has {config.max_positions} positions, so "
            f"that its context cannot be {'unlimited' if context is None else context}. Set at "
            f"most {config.max_positions}: longer questions then end with CONTEXT_OVERFLOW. Or "
            "increase model.tiny.max_positions."
        )


def _settings(recipe: Recipe, envs: RunEnvs) -> dict[str, Any]:
    """Return everything that the weights depend on, long texts as hashes."""
    return {
        "build": BUILD,
        "corpus": _corpus_digest(),
        "tiny": _tiny_settings(recipe.model.tiny),
        **play_settings(recipe, envs),
    }


def _tiny_settings(config: TinyConfig) -> dict[str, Any]:
    """Return the table; without later keys where they have the default, so that models keep the
    names that they had before there were these keys."""
    import msgspec

    table: dict[str, Any] = msgspec.to_builtins(config)
    defaults = TinyConfig()
    for key in ("corpus", "pieces", "teacher", "habit"):
        if table[key] == getattr(defaults, key):
            del table[key]
    return table


@lru_cache(maxsize=1)
def _corpus_digest() -> str:
    from gem_core.training.tiny.corpus import corpus

    return digest("\0".join(corpus()))


def _build(recipe: Recipe, settings: dict[str, Any], folder: Path) -> None:
    require_hf("The tiny model")
    from gem_core.training.tiny.build import build

    build(recipe, settings, folder)
