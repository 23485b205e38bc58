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
    A ``closing`` that is several tokens of the tokenizer ends nothing: a policy that writes it
    letter by letter is cut off at its limit in every turn.

    Args:
        hf: a Hugging Face tokenizer.
        closing: the template's text at the end of an action; may be empty.
        eos_ids: the model's own eos tokens.

    Raises:
        RecipeError: there is no such id, or ``closing`` ends with no token of the tokenizer.
    """
    ids = {hf.eos_token_id} - {None}
    end = closing.strip()
    if end:
        encoded = list(hf.encode(end, add_special_tokens=False))
        if len(encoded) != 1 and not end.endswith(tuple(added_tokens(hf))):
            raise RecipeError(
                f"context.template ends an action with {end!r}, which is no token of this model's "
                "tokenizer, so that no turn would end with it: choose 'chat' if the model has a "
                "chat template, else 'no', or 'custom' with a close that is one of its tokens."
            )
        ids |= set(encoded[-1:])
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
