"""The tokenizer of a GGUF file of Gemma as ``tokenizer.json`` and ``tokenizer_config.json``.

The file has SentencePiece's pieces with scores. Hugging Face's fast tokenizers replay the same
merges from a list: every pair of pieces whose text is a piece, in the order of its score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gem_core.errors import DataError

UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4
"""Types of pieces; those not named here are pieces of text or single bytes."""
_ADDED = (UNKNOWN, CONTROL, USER_DEFINED)
_SPACE = "\u2581"
"""What stands for a space in pieces."""


def tokenizer_of(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the content of ``tokenizer.json`` and of ``tokenizer_config.json``.

    Args:
        values: header of a GGUF file.

    Raises:
        DataError: its tokenizer is of another kind.
    """
    if values.get("tokenizer.ggml.model") != "llama":
        raise DataError("The GGUF file has no SentencePiece tokenizer: name one of Gemma.")
    pieces: list[str] = values["tokenizer.ggml.tokens"]
    kinds: list[int] = values["tokenizer.ggml.token_type"]
    added = [_added(n, pieces[n], kind) for n, kind in enumerate(kinds) if kind in _ADDED]
    special = {
        name: pieces[values[f"tokenizer.ggml.{key}_token_id"]]
        for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown"))
    }
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE},
        "pre_tokenizer": None,
        "post_processor": _begin(special["bos"], pieces.index(special["bos"])),
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": special["unk"],
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": {piece: n for n, piece in enumerate(pieces)},
            "merges": merges(pieces, values["tokenizer.ggml.scores"], kinds),
        },
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": values[f"{values['general.architecture']}.context_length"],
        **{f"{name}_token": piece for name, piece in special.items()},
    }
    return content, settings


def merges(
    pieces: Sequence[str], scores: Sequence[float], kinds: Sequence[int]
) -> list[tuple[str, str]]:
    """Return every pair of pieces that makes a piece of text, the best score first.

    Of the pairs that make one piece, that with the lower numbers is first.

    >>> merges(["a", "b", "ab", "aba"], [0.0, 0.0, -1.0, -2.0], [1, 1, 1, 1])
    [('a', 'b'), ('ab', 'a')]
    """
    numbers = {piece: n for n, piece in enumerate(pieces) if kinds[n] not in (UNKNOWN, CONTROL)}
    found: list[tuple[float, int, int]] = []
    for piece, n in numbers.items():
        for cut in range(1, len(piece)):
            left, right = numbers.get(piece[:cut]), numbers.get(piece[cut:])
            if left is not None and right is not None:
                found.append((-scores[n], left, right))
    return [(pieces[left], pieces[right]) for _, left, right in sorted(found)]


def _added(number: int, piece: str, kind: int) -> dict[str, Any]:
    return {
        "id": number,
        "content": piece,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": kind != USER_DEFINED,
    }


def _begin(bos: str, number: int) -> dict[str, Any]:
    """Return what puts ``<bos>`` in front of a text, as Gemma was trained."""
    token = {"SpecialToken": {"id": bos, "type_id": 0}}
    first = [token, {"Sequence": {"id": "A", "type_id": 0}}]
    second = [*first, {"SpecialToken": {"id": bos, "type_id": 1}}]
    return {
        "type": "TemplateProcessing",
        "single": first,
        "pair": [*second, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {bos: {"id": bos, "ids": [number], "tokens": [bos]}},
    }
