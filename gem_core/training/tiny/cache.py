"""The cache of built tiny models, with a lock so that only one process builds each of them."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from filelock import FileLock

from gem_core.episodes.templates import Template
from gem_core.errors import RecipeError
from gem_core.policies.models.source import reading_model, require_hf
from gem_core.runs.cache import cache_root
from gem_core.runs.recipe.recipe import EnvConfig, Recipe, TinyConfig
from gem_core.runs.recipe.templates import recipe_template
from gem_core.runs.splits import RunEnvs, run_envs

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
        RecipeError: the sizes do not fit together.
        GemError: an environment of the warm start failed.
    """
    if recipe.model.path != "tiny":
        return recipe.model.path
    _check(recipe.model.tiny, recipe.limits.max_context_tokens)
    settings = _settings(recipe, run_envs(recipe) if envs is None else envs)
    folder = cache_root() / "tiny" / _digest(json.dumps(settings, sort_keys=True))
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_suffix(".lock")):
            if not folder.exists():
                _build(recipe, settings, folder)
    return str(folder)


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
    unit = 2 * config.heads
    if config.hidden % unit:
        raise RecipeError(
            f"model.tiny.hidden: {config.hidden} is not a multiple of {unit}: {config.heads} heads "
            "divide it, and rotary positions need an even number per head."
        )
    if context is None or context > config.max_positions:
        raise RecipeError(
            f"limits.max_context_tokens: the tiny model has {config.max_positions} positions, so "
            f"that its context cannot be {'unlimited' if context is None else context}. Set at "
            f"most {config.max_positions}: longer questions then end with CONTEXT_OVERFLOW. Or "
            "increase model.tiny.max_positions."
        )


def _settings(recipe: Recipe, envs: RunEnvs) -> dict[str, Any]:
    """Return everything that the weights depend on, long texts as hashes."""
    from gem_core.runs.environments.data import task_fingerprint
    from gem_core.training.tiny.expert import sample_actions

    resolved = recipe.to_dict()
    warm = recipe.model.tiny.warm_start_steps > 0
    tiny = recipe.model.tiny
    return {
        "build": BUILD,
        "corpus": _corpus_digest(),
        "tiny": _tiny_settings(recipe.model.tiny),
        "seed": recipe.seed,
        "context": _context_settings(recipe),
        "template": _digest(repr(_template(recipe))),
        "max_turns": recipe.limits.max_turns,
        "env": [
            {
                **table,
                "fingerprint": task_fingerprint(config, key),
                "expert": _digest(sample_actions(config, teacher=tiny.teacher)) if warm else None,
                **_habit_settings(config, tiny, warm),
            }
            for (config, key), table in zip(envs["train"], resolved["env"], strict=True)
        ],
    }


def _template(recipe: Recipe) -> Template | None:
    return None if recipe.context.template == "chat" else recipe_template(recipe.context)


def _context_settings(recipe: Recipe) -> dict[str, Any]:
    """Return the table; without the custom texts where another template is used, as before."""
    table: dict[str, Any] = recipe.to_dict()["context"]
    if recipe.context.template != "custom":
        del table["custom"]
    return table


def _habit_settings(env: EnvConfig, tiny: TinyConfig, warm: bool) -> dict[str, Any]:
    """Return what identifies the habit; nothing for random actions, as before there were others."""
    from gem_core.training.tiny.expert import sample_actions

    if not warm or tiny.habit == TinyConfig().habit:
        return {}
    return {"habit": _digest(sample_actions(env, teacher=tiny.habit))}


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

    return _digest("\0".join(corpus()))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _build(recipe: Recipe, settings: dict[str, Any], folder: Path) -> None:
    """Build next to the target and rename, so that a killed build leaves no incomplete model."""
    build = _builder()
    partial = Path(tempfile.mkdtemp(prefix=folder.name + ".partial-", dir=folder.parent))
    try:
        build(recipe, settings, partial)
        partial.chmod(0o755)  # mkdtemp's 0o700 would hide a shared cache from other users
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial)
        raise


def _builder() -> Any:
    require_hf("The tiny model")
    from gem_core.training.tiny.warm_start import build

    return build
