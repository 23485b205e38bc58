"""The ends of actions: stop ids from the tokenizer, the template and the model's configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gem_core.episodes.special_tokens import added_tokens
from gem_core.errors import RecipeError


def find_stop_ids(hf: Any, closing: str, revision: str | None = None) -> frozenset[int]:
    """Return the ids that end an action.

    They are the tokenizer's eos token, the token at the end of ``closing``, and the eos tokens of
    the model's ``generation_config.json``: engines stop at all of them, so that an action that ends
    with any of them is complete.

    Args:
        hf: a Hugging Face tokenizer.
        closing: the template's text at the end of an action; may be empty.
        revision: revision of the model, if it is a Hugging Face id.

    Raises:
        RecipeError: there is no such id.
    """
    ids = {hf.eos_token_id} - {None}
    if closing.strip():
        encoded = list(hf.encode(closing.strip(), add_special_tokens=False))
        is_token = len(encoded) == 1 or closing.strip().endswith(tuple(added_tokens(hf)))
        ids |= set(encoded[-1:]) if is_token else set()
    ids |= set(generation_eos_ids(hf, revision))
    if not ids:
        raise RecipeError("The tokenizer has no eos token, so that no turn could end: set one.")
    return frozenset(int(i) for i in ids)


def generation_eos_ids(hf: Any, revision: str | None = None) -> list[int]:
    """Return ``eos_token_id`` of the ``generation_config.json`` next to the tokenizer, if any."""
    path = _generation_config(str(getattr(hf, "name_or_path", "") or ""), revision)
    if path is None:
        return []
    eos = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id")
    if eos is None:
        return []
    return [int(i) for i in (eos if isinstance(eos, list) else [eos])]


def _generation_config(source: str, revision: str | None) -> Path | None:
    """Return the file in the folder ``source``, or of the Hugging Face id ``source``."""
    name = "generation_config.json"
    if not source:
        return None
    if Path(source).is_dir():
        path = Path(source) / name
        return path if path.is_file() else None
    from transformers.utils.hub import cached_file

    file = cached_file(
        source,
        name,
        revision=revision or "main",
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return None if file is None else Path(file)


def split_turn_end(between: str, hf: Any) -> tuple[str, str]:
    """Cut the text between an action and the next observation after the token that ends the turn.

    It is the first of the tokenizer's added tokens. Where a template closes no turn (GLM-4), that
    is the token that begins the next message; the model samples it at the end of its own.

    Raises:
        RecipeError: there is no such token.
    """
    ends = [
        (between.index(text), -len(text), text)
        for text in added_tokens(hf)
        if text.strip() and text in between
    ]
    if not ends:
        raise RecipeError(
            f"The tokenizer's chat template ends an action with {between[:40]!r}, which has no "
            "special token that ends the turn: choose another context.template, or give the "
            "tokenizer a chat template with an end token."
        )
    start, _, text = min(ends)
    end = start + len(text)
    return between[:end], between[end:]
