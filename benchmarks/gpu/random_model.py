"""A model of Qwen3-0.6B's sizes with random weights: speed and memory need no trained ones.

    python benchmarks/gpu/random_model.py FOLDER

Nothing is downloaded. Its tokenizer knows the 256 bytes and Qwen's special tokens; every other id
is a word without a meaning, which the model may sample and no text contains. The model plays
nonsense: an episode is one turn as long as ``limits.max_tokens_per_turn`` allows.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

SIZES: dict[str, Any] = {
    "vocab_size": 151_936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40_960,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}
"""Sizes of Qwen3-0.6B, from its ``config.json`` on the Hub."""
SPECIAL = {151_643: "<|endoftext|>", 151_644: "<|im_start|>", 151_645: "<|im_end|>"}
"""Qwen3's ids of the special tokens that templates and engines need."""


def write_model(folder: Path, sizes: dict[str, Any] = SIZES) -> None:
    """Write a folder that transformers and vLLM load: weights in bfloat16 (1.2 GB), tokenizer.

    Args:
        folder: gets the files; it is made.
        sizes: of the model, as in `SIZES`; the vocabulary stays as it is.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    end = next(number for number, text in SPECIAL.items() if text == "<|im_end|>")
    model = Qwen3ForCausalLM(Qwen3Config(**sizes, eos_token_id=end))
    model.to(torch.bfloat16).save_pretrained(folder)
    write_tokenizer(folder)


def write_tokenizer(folder: Path) -> None:
    """Write a tokenizer of bytes, Qwen's special tokens and fillers in a model's folder."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    first = min(SPECIAL)
    fillers = (f"w{number}" for number in range(len(letters), first))
    vocabulary = {text: number for number, text in enumerate([*letters, *fillers])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL.values()])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": SIZES["max_position_embeddings"],
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Name the folder: python benchmarks/gpu/random_model.py FOLDER")
    write_model(Path(sys.argv[1]))
