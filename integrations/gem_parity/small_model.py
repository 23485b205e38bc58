"""The random two-layer model over bytes that frozen episodes and recorded runs are trained on."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM


def write_model(folder: str | Path, *, tied: bool = True, vocab: int = 258) -> str:
    """Write the model in Hugging Face's format, without a tokenizer; return its directory.

    The same arguments give the same weights. The global generator of torch is left as it was.

    Args:
        folder: where to.
        tied: whether the output layer is the input embedding.
        vocab: size of the vocabulary; `gem_parity.frozen.frozen_batch` needs at least 258.
    """
    config = Qwen3Config(
        vocab_size=vocab,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
        tie_word_embeddings=tied,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Qwen3ForCausalLM(config)
    model.save_pretrained(folder)
    return str(folder)
