"""The ends of actions: the ids that end one, and the text that closes it in a chat template."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gem_core.episodes.special_tokens import added_tokens
from gem_core.errors import RecipeError


def find_stop_ids(hf: Any, closing: str, eos_ids: Iterable[int] = ()) -> frozenset[int]:
    """Return the ids that end an action.

    They are the tokenizer's eos token, the token at the end of ``closing``, and the model's own eos
    tokens: engines stop at all of them, so that an action that ends with any of them is complete.

    Args:
        hf: a Hugging Face tokenizer.
        closing: the template's text at the end of an action; may be empty.
        eos_ids: the model's own eos tokens.

    Raises:
        RecipeError: there is no such id.
    """
    ids = {hf.eos_token_id} - {None}
    if closing.strip():
        encoded = list(hf.encode(closing.strip(), add_special_tokens=False))
        is_token = len(encoded) == 1 or closing.strip().endswith(tuple(added_tokens(hf)))
        ids |= set(encoded[-1:]) if is_token else set()
    ids |= set(eos_ids)
    if not ids:
        raise RecipeError("The tokenizer has no eos token, so that no turn could end: set one.")
    return frozenset(int(i) for i in ids)


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
