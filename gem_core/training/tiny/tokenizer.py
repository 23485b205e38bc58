"""The tiny tokenizer: byte-level BPE in which constant phrases are single tokens.

Merges may cross spaces and line ends, so that a prompt of a thousand characters has about twenty
tokens. Digits and the brackets of an answer are never merged, so that the model spells an action
instead of memorising it; `PIECES` has other divisions. Every text is encoded and decoded without
loss. The files are written here in a format that transformers 4.51 to 5.x read in the same way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

PAD = "<|pad|>"
START = "<|im_start|>"
END = "<|im_end|>"
SPECIAL = (PAD, START, END)
"""Special tokens; their ids are 0, 1 and 2."""
_CELL = r" *[0-9]| *[A-Z](?![a-z])| *[._#√](?=[ \n])"
PIECES = {
    "digits": r"\\boxed\{|\}|[0-9]",
    "cells": r"\\boxed\{|\}|" + _CELL,
    "numbers": r"\\boxed\{|\}| +[0-9]+(?=[ \n])| *[._]+(?=[ \n])|[0-9]",
    "integers": r"\\boxed\{|\}|[0-9]+",
    "letters": r'\\boxed\{|\}|[0-9]|[A-Za-z](?=[A-Za-z0-9 ]*"\?)|[a-zA-Z](?=" appear)',
}
"""``model.tiny.pieces`` -> what is never merged with its neighbours, as a regular expression."""
_CHAT = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def train_tokenizer(texts: Iterable[str], vocab: int, pieces: str = "digits") -> Tokenizer:
    """Train the tokenizer on whole episodes, with special tokens as text.

    ``vocab`` is the upper bound of the vocabulary, which always has the 256 bytes and the special
    tokens; ``pieces``, a key of `PIECES`, says what is never merged.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES[pieces]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_pieces(texts), trainer)
    return tokenizer


def _pieces(texts: Iterable[str]) -> Iterable[str]:
    """Yield the texts between special tokens; the trainer would merge across special tokens."""
    special = re.compile("|".join(map(re.escape, SPECIAL)))
    for text in texts:
        yield from filter(None, special.split(text))


def write_tokenizer(tokenizer: Tokenizer, folder: Path, max_positions: int) -> None:
    """Write ``tokenizer.json``, ``tokenizer_config.json`` and ``special_tokens_map.json``."""
    tokenizer.save(str(folder / "tokenizer.json"))
    added = {str(tokenizer.token_to_id(text)): _special_token(text) for text in SPECIAL}
    roles = {"eos_token": END, "pad_token": PAD}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "added_tokens_decoder": added,
        "additional_special_tokens": [START],
        "chat_template": _CHAT,
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_positions,
        "padding_side": "left",
        **roles,
    }
    write_json(folder / "tokenizer_config.json", config)
    write_json(folder / "special_tokens_map.json", {**roles, "additional_special_tokens": [START]})


def _special_token(text: str) -> dict[str, Any]:
    flags = ("lstrip", "normalized", "rstrip", "single_word")
    return {"content": text, "special": True, **dict.fromkeys(flags, False)}


def write_json(path: Path, data: Any) -> None:
    """Write ``data`` as indented JSON."""
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
