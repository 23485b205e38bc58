"""Where verl loads the model of a recipe from."""

from __future__ import annotations

from pathlib import Path

from gem_core.tiny import model_path
from gem_core.training.recipe import Recipe


def model_source(recipe: Recipe) -> str:
    """Return a directory, or a Hugging Face id without a revision: verl has no key for one.

    A revision is downloaded, or found, in the local cache; on several nodes that is to be shared.
    """
    name = model_path(recipe)
    revision = recipe.model.revision
    if revision is None or Path(name).is_dir():
        return name
    from huggingface_hub import snapshot_download

    folder: str = snapshot_download(name, revision=revision)
    return folder
