"""Configuration and initial weights of the tiny model (Qwen3 architecture, float32)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from gem_core.runs.recipe.recipe import TinyConfig
from gem_core.training.tiny.tokenizer import write_json

_ROPE_THETA = 10_000.0
_INITIAL_STD = 0.125  # 1 / sqrt(64); with 0.02, the short warm start learns half as much


def write_config(config: TinyConfig, vocab: int, eos: int, pad: int, folder: Path) -> None:
    """Write ``config.json`` and ``generation_config.json``."""
    ids = {"bos_token_id": None, "eos_token_id": eos, "pad_token_id": pad}
    write_json(
        folder / "config.json",
        {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "vocab_size": vocab,
            "hidden_size": config.hidden,
            "intermediate_size": 2 * config.hidden,
            "num_hidden_layers": config.layers,
            "num_attention_heads": config.heads,
            "num_key_value_heads": config.heads,
            "head_dim": config.hidden // config.heads,
            "hidden_act": "silu",
            "max_position_embeddings": config.max_positions,
            "initializer_range": 0.02,
            "rms_norm_eps": 1e-6,
            "rope_theta": _ROPE_THETA,
            "attention_bias": False,
            "attention_dropout": 0.0,
            "use_sliding_window": False,
            "sliding_window": None,
            "tie_word_embeddings": True,
            "torch_dtype": "float32",
            "use_cache": True,
            **ids,
        },
    )
    write_json(folder / "generation_config.json", {"do_sample": True, **ids})


def initial_model(folder: Path, seed: int) -> Any:
    """Build the model of ``folder/config.json`` with weights that depend only on ``seed``.

    The parameters are drawn in the order of their names, so that the weights do not depend on the
    order in which a version of transformers initialises them. The global generator is not changed.
    """
    with torch.random.fork_rng(devices=[]):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    model = model.float()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, weight in sorted(model.named_parameters()):
            if weight.dim() == 1:
                weight.fill_(1.0)  # a scale of RMSNorm
            else:
                weight.normal_(0.0, _INITIAL_STD, generator=generator)
    return model
