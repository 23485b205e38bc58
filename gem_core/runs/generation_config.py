"""A model's ``generation_config.json``: the tokens that end what the model writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

GENERATION = "generation_config.json"
"""The file that says how a model samples, and which tokens end what it writes."""


def read_eos_ids(hf: Any, revision: str | None = None) -> list[int]:
    """Return ``eos_token_id`` of the ``generation_config.json`` next to a tokenizer, if any.

    Its ``name_or_path`` is a folder, or a Hugging Face id, of which ``revision`` is meant.
    """
    path = _find_file(str(getattr(hf, "name_or_path", "") or ""), revision)
    if path is None:
        return []
    eos = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id")
    if eos is None:
        return []
    return [int(i) for i in (eos if isinstance(eos, list) else [eos])]


def write_eos_ids(model: Path, eos_ids: list[int]) -> None:
    """Write ``eos_token_id`` into the ``generation_config.json`` of a model's folder.

    What serves the model reads it (vLLM, SGLang, transformers), and ends a turn at these tokens.
    """
    path = model / GENERATION
    settings = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    settings["eos_token_id"] = eos_ids
    path.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def _find_file(source: str, revision: str | None) -> Path | None:
    """Return the file in the folder ``source``, or of the Hugging Face id ``source``."""
    if not source:
        return None
    if Path(source).is_dir():
        path = Path(source) / GENERATION
        return path if path.is_file() else None
    from transformers.utils.hub import cached_file

    file = cached_file(
        source,
        GENERATION,
        revision=revision or "main",
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return None if file is None else Path(file)
