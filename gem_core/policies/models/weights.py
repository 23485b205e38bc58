"""Reads the weights of a model; whether its files hold all of them, and no code.

A model's ``source`` is a directory, or a Hugging Face id, which has a ``revision``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gem_core.env.registration.references import needs_trust_as_data
from gem_core.errors import RecipeError, RunError
from gem_core.policies.models.source import reading_model, require_folder
from gem_core.runs.recipe.recipe import Recipe

TINY = "tiny"
"""The ``model.path`` of a model that the project makes itself."""
_SETTINGS = (
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "processor_config.json",
    "preprocessor_config.json",
)
_CODE = ("custom_generate/generate.py", "adapter_config.json")
"""Files whose presence makes transformers load code, or another model with code of its own."""


def load_model(source: str | Path, dtype: str = "float32", revision: str | None = None) -> Any:
    """Return a causal language model with all of its numbers in ``dtype``.

    ``from_pretrained(source).float()`` differs: transformers 5 builds the model in the file's
    precision first, which rounds what is made of its settings (25.298 of Gemma 3 to 25.25).
    """
    import torch
    import transformers

    old = tuple(map(int, transformers.__version__.split(".")[:2])) < (4, 56)
    precision = {"torch_dtype" if old else "dtype": getattr(torch, dtype)}
    auto = transformers.AutoModelForCausalLM
    return auto.from_pretrained(source, revision=revision or "main", **precision)


def require_complete(recipe: Recipe) -> None:
    """Refuse a model whose files lack weights: transformers and the trainers would draw them.

    No weight is loaded for it. A model that is not in the local cache is downloaded.

    Raises:
        GemError: as `require_weights`.
    """
    if recipe.model.path != TINY:
        require_weights(recipe.model.path, recipe.model.revision)


def require_weights(source: str, revision: str | None = None) -> None:
    """Refuse a model whose files lack weights or a tokenizer, or cannot be read.

    Raises:
        RecipeError: weights are missing, or there is no such model.
        MissingDependencyError: torch or transformers is missing.
        TrustError: it brings code, see `require_no_code`.
    """
    require_folder(source)
    if Path(source).is_dir():
        require_no_code(source)  # without the libraries that would read it
    else:
        with reading_model(source):
            require_no_code(source, revision)
    missing = missing_weights(source, revision)
    if missing:
        raise RecipeError(
            f"model.path: {_list_missing(missing)} not in the files of {source}: they would be "
            "random. Export the whole model under the names of its class, adapters merged, or "
            "name another one."
        )
    with reading_model(source):
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(source, revision=revision or "main")
            found = len(tokenizer) >= 2  # transformers 5 makes one of one token without its files
        except TypeError:  # transformers 4 opens the file None
            found = False
        if not found:
            raise ValueError("it has no files of a tokenizer")


def require_no_code(source: str | Path, revision: str | None = None) -> None:
    """Refuse a model that brings Python code: OpenRLHF, Oat and RL2 would run it unasked.

    Raises:
        TrustError: its settings name code (``auto_map``), and the user gave no ``--trust``.
    """
    for name in (*_SETTINGS, *_CODE):
        file = _file(str(source), revision, name)
        if file is not None and (name in _CODE or "auto_map" in _settings(file)):
            needs_trust_as_data(f"model.path: {source} brings code ({name})")


def _file(source: str, revision: str | None, name: str) -> Path | None:
    """Return a file of a model, which is downloaded where it can be; ``None`` if there is none."""
    if Path(source).is_dir():
        return Path(source, name) if Path(source, name).exists() else None
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import (
        EntryNotFoundError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    absent = (EntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError)
    try:
        return Path(hf_hub_download(source, name, revision=revision))
    except (*absent, HFValidationError):
        return None  # what loads the model says so, if it needs the file


def _settings(file: Path) -> str:
    """Return the text of a file of JSON, with no letter written as an escape."""
    text = file.read_text(encoding="utf-8", errors="replace")
    try:
        return json.dumps(json.loads(text))
    except (ValueError, RecursionError):  # nothing that reads it as JSON can read it
        return text


def require_export(trainer: str, model: Path) -> None:
    """Check that a trainer wrote a model that loads as it was trained.

    Raises:
        RunError: there is none in the directory, or it lacks weights.
    """
    if not (model / "config.json").exists():
        raise RunError(f"{trainer} wrote no model to {model}; see its output above.")
    missing = missing_weights(str(model))
    if missing:
        raise RunError(
            f"{trainer} trained to the end, but {_list_missing(missing)} not in the files that it "
            f"wrote to {model}. The checkpoints are as they were; please report this."
        )


def missing_weights(source: str, revision: str | None = None) -> list[str]:
    """Return the names of a model's weights that are in none of its files, tied ones not counted.

    Raises:
        RecipeError: there is no such model, or it cannot be read.
        MissingDependencyError: torch or transformers is missing.
    """
    options: dict[str, Any] = {"revision": revision} if revision else {}
    with reading_model(source):
        import transformers
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

        config = transformers.AutoConfig.from_pretrained(source, **options)
        # As the trainers choose: the text model where there is one, otherwise that with images.
        if config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
            auto = transformers.AutoModelForCausalLM
        else:
            auto = transformers.AutoModelForImageTextToText
        _, report = auto.from_pretrained(
            source, config=config, device_map="meta", output_loading_info=True, **options
        )
        return sorted(report["missing_keys"])


def _list_missing(missing: list[str]) -> str:
    shown = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
    return f"{len(missing)} weights ({shown}) are"
