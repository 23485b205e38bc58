"""Where downloaded models are kept: in the cache, each made once.

``origin.json`` in a model's folder says what it is made from; ``run.json`` copies it, and so does a
model that is trained from it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gem_core.errors import DataError, GemError
from gem_core.policies.models.files import ORIGIN
from gem_core.policies.models.source import require_hf
from gem_core.runs.cache import cached_folder, folder_of
from gem_models.catalogue import PackagedModel
from gem_models.download import download

BUILD = 1
"""Increase it when the same file gives another folder."""
_KIND = "models"


def get_model(model: PackagedModel, accepted: bool) -> Path:
    """Return the folder of a model; it is downloaded and converted if the cache does not have it.

    Args:
        model: which one.
        accepted: the user accepts its terms.

    Raises:
        GemError: the terms are not accepted.
        DataError: it cannot be downloaded, or is not the one of the catalogue.
        MissingDependencyError: torch, transformers or tokenizers, or pip, is missing.
    """
    if not accepted:
        raise GemError(
            f"{model.name} is subject to the {model.terms}, {model.terms_url}: read them, then "
            "accept them with --accept-terms."
        )
    require_hf("Converting a model")

    def build(folder: Path) -> None:
        from gem_models.convert import convert

        file = folder / "model.gguf"
        download(model, file)
        convert(file, folder)
        file.unlink()
        _write_origin(folder, _origin(model))

    return cached_folder(_KIND, _settings(model), build)


def trimmed_model(model: PackagedModel, texts: Sequence[str], what: Sequence[str]) -> Path:
    """Return the folder of a copy with only the tokens of some texts; it is made once.

    Args:
        model: one that the cache has.
        texts: they are encoded as before.
        what: where they come from, for the record.

    Raises:
        GemError: the cache does not have it, or the copy is not equal to it.
    """
    source = find_model(model)
    sha = hashlib.sha256()
    for text in texts:
        sha.update(json.dumps(text).encode())
    settings = {**_settings(model), "texts": sha.hexdigest()}

    def build(folder: Path) -> None:
        from gem_models.trim import trim

        facts = trim(source, folder, texts)
        vocabulary = {**facts, "texts_of": list(what), "texts_sha256": sha.hexdigest()}
        _write_origin(folder, {**_origin(model), "vocabulary": vocabulary})

    return cached_folder(_KIND, settings, build)


def find_model(model: PackagedModel) -> Path:
    """Return the folder of a model that the cache has, its whole vocabulary in it.

    Raises:
        DataError: it was not downloaded yet.
    """
    folder = folder_of(_KIND, _settings(model))
    if not folder.is_dir():
        raise DataError(f"{model.name} is not here: gem-core model get {model.name}")
    return folder


def _settings(model: PackagedModel) -> dict[str, Any]:
    return {"build": BUILD, "model": model.name, "sha256": model.sha256}


def _origin(model: PackagedModel) -> dict[str, Any]:
    return {
        "model": model.name,
        "packages": [f"{part.package}=={part.version}" for part in model.parts],
        "gguf_sha256": model.sha256,
        "terms": model.terms_url,
        "vocabulary": None,
    }


def _write_origin(folder: Path, origin: Mapping[str, Any]) -> None:
    (folder / ORIGIN).write_text(json.dumps(origin, indent=2) + "\n", "utf-8")
