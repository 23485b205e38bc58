"""From a GGUF file of Gemma 3 to a folder that transformers and the trainers load.

The configuration has the keys of the released models, which transformers 4.5x and 5.x both read.
Nothing in it says that the weights were quantised: they are plain numbers again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gem_core.errors import DataError
from gem_models.gguf import Floats, Gguf
from gem_models.tokenizer import tokenizer_of

_FAMILY = "gemma3"
_LOCAL_ROPE = 10000.0
"""Base of the rotations of sliding layers; the file has only that of the others."""
_PATTERN = 6
"""Every sixth layer sees the whole text."""
_MODEL = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
_LAYER = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""Names in the file -> names in transformers, without ``.weight``."""


def convert(source: Path, folder: Path) -> None:
    """Write the model of a GGUF file, its weights in bfloat16, into a folder.

    Args:
        source: the GGUF file.
        folder: an existing empty directory.

    Raises:
        DataError: it is no GGUF file of Gemma 3, or it cannot be read.
        MissingDependencyError: torch or safetensors is missing.
    """
    import torch
    from safetensors.torch import save_file

    file = Gguf(source)
    if file.values.get("general.architecture") != _FAMILY:
        raise DataError(f"{source} is not of Gemma 3: name a GGUF file of {_FAMILY}.")
    weights = {name: torch.from_numpy(w).to(torch.bfloat16) for name, w in _weights(file)}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # safetensors makes it for its owner only
    config = config_of(file.values)
    tokenizer, settings = tokenizer_of(file.values)
    ids = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    for name, content in {
        "config.json": config,
        "generation_config.json": ids,
        "tokenizer_config.json": settings,
    }.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", "utf-8")
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), "utf-8")


def config_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of ``config.json``.

    Args:
        values: header of a GGUF file of Gemma 3.
    """

    def value(key: str) -> Any:
        return values[f"{_FAMILY}.{key}"]

    layers = value("block_count")
    kinds = ("full_attention", "sliding_attention")
    return {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "vocab_size": len(values["tokenizer.ggml.tokens"]),
        "hidden_size": value("embedding_length"),
        "intermediate_size": value("feed_forward_length"),
        "num_hidden_layers": layers,
        "num_attention_heads": value("attention.head_count"),
        "num_key_value_heads": value("attention.head_count_kv"),
        "head_dim": value("attention.key_length"),
        "query_pre_attn_scalar": value("attention.key_length"),
        "max_position_embeddings": value("context_length"),
        "sliding_window": value("attention.sliding_window"),
        "layer_types": [kinds[(n + 1) % _PATTERN != 0] for n in range(layers)],
        "rms_norm_eps": float(f"{value('attention.layer_norm_rms_epsilon'):.6g}"),
        "rope_theta": value("rope.freq_base"),
        "rope_local_base_freq": _LOCAL_ROPE,
        "rope_scaling": None,
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "initializer_range": 0.02,
        "tie_word_embeddings": True,
        "use_cache": True,
        "bos_token_id": values["tokenizer.ggml.bos_token_id"],
        "eos_token_id": values["tokenizer.ggml.eos_token_id"],
        "pad_token_id": values["tokenizer.ggml.padding_token_id"],
        "torch_dtype": "bfloat16",
        "dtype": "bfloat16",
    }


def _weights(file: Gguf) -> Iterator[tuple[str, Floats]]:
    """Yield the weights by their names in transformers.

    The file has a norm's weight as what the norm multiplies by; in transformers it is that less 1.
    """
    for name in file.tensors:
        weight = np.array(file.load(name))
        yield _name(name), weight - 1 if name.endswith("norm.weight") else weight


def _name(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if kind == "weight" and stem in _MODEL:
        return f"{_MODEL[stem]}.weight"
    head, _, rest = stem.partition(".")
    number, _, part = rest.partition(".")
    if head != "blk" or part not in _LAYER or kind != "weight":
        raise DataError(f"The tensor {name} is not one of Gemma 3: name another GGUF file.")
    return f"model.layers.{number}.{_LAYER[part]}.weight"
