"""A warm start of a pretrained causal language model, kept in the cache.

The weights are trained in float32 on the recipe's device, with products in the recipe's precision,
and stored in that precision. The folder is a model like any other; ``warm_start.json`` in it says
what was imitated.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gem_core.env.files import file_sha256
from gem_core.policies.models.source import reading_model, require_hf
from gem_core.runs.cache import cached_folder
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.splits import RunEnvs, run_envs
from gem_core.training.warm_start.imitation import imitation_of
from gem_core.training.warm_start.settings import play_settings

BUILD = 2
"""Increase it when the same settings give different weights."""


def warm_started(recipe: Recipe, envs: RunEnvs | None = None) -> str:
    """Return ``model.path``, or with ``model.warm_start`` the folder of the model after it.

    Raises:
        MissingDependencyError: torch, transformers or tokenizers is missing.
        RecipeError: the model cannot be read.
        GemError: an environment of the warm start failed.
    """
    if not recipe.model.warm_start.steps:
        return recipe.model.path
    require_hf("A warm start")
    source = _source(recipe)
    envs = run_envs(recipe) if envs is None else envs
    settings = start_settings(recipe, envs, _hash_files(source))

    def build(folder: Path) -> None:
        from gem_core.training.warm_start.build import build_pretrained

        build_pretrained(recipe, source, settings, folder)

    return str(cached_folder("warm-start", settings, build))


def start_settings(recipe: Recipe, envs: RunEnvs, files: dict[str, str]) -> dict[str, Any]:
    """Return everything that the weights depend on, with the SHA-256 of each file of the model."""
    return {
        "build": BUILD,
        **({"device": "gpu"} if recipe.hardware.device == "gpu" else {}),
        "model": recipe.model.path,
        "files": files,
        "imitation": imitation_of(recipe)._asdict(),
        **play_settings(recipe, envs),
    }


def _source(recipe: Recipe) -> Path:
    """Return the folder of the model; one of the Hub is downloaded, or found in its cache."""
    with reading_model(recipe.model.path):
        if Path(recipe.model.path).is_dir():
            return Path(recipe.model.path)
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(recipe.model.path, revision=recipe.model.revision))


def _hash_files(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of the files that a model is made of."""
    kinds = (".json", ".safetensors", ".bin", ".model", ".jinja", ".txt")
    files = [file for file in sorted(folder.iterdir()) if file.suffix in kinds]
    return {file.name: file_sha256(file) for file in files if file.name != "warm_start.json"}
