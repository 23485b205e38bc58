"""The sizes of a model: from its ``config.json``, or of the Qwen3 family as data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gem_core.errors import RecipeError
from gem_core.runs.recipe.recipe import ModelConfig


@dataclass(frozen=True)
class Shape:
    """The sizes of a decoder with grouped-query attention and a gated MLP.

    Attributes:
        hidden: size of the residual stream.
        layers: decoder layers.
        heads: query heads.
        kv_heads: key and value heads.
        head_dim: size of a head.
        intermediate: inner size of the MLP.
        vocab: rows of the embedding.
        tied: whether the output head is the embedding.
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool

    @property
    def parameters(self) -> int:
        """Number of weights; those of the RMSNorms of queries and keys (Qwen3) included."""
        queries = self.heads * self.head_dim
        keys = self.kv_heads * self.head_dim
        attention = self.hidden * (2 * queries + 2 * keys) + 2 * self.head_dim
        layer = attention + 3 * self.hidden * self.intermediate + 2 * self.hidden
        embeddings = self.vocab * self.hidden * (1 if self.tied else 2)
        return embeddings + self.layers * layer + self.hidden

    def cache_bytes(self, tokens: int, width: int = 2) -> int:
        """Return the bytes of keys and values of ``tokens`` tokens, ``width`` bytes a number."""
        return 2 * self.layers * self.kv_heads * self.head_dim * width * tokens


QWEN3 = {
    "Qwen3-0.6B": Shape(1024, 28, 16, 8, 128, 3072, 151936, True),
    "Qwen3-1.7B": Shape(2048, 28, 16, 8, 128, 6144, 151936, True),
    "Qwen3-4B": Shape(2560, 36, 32, 8, 128, 9728, 151936, True),
    "Qwen3-8B": Shape(4096, 36, 32, 8, 128, 12288, 151936, False),
    "Qwen3-14B": Shape(5120, 40, 40, 8, 128, 17408, 151936, False),
    "Qwen3-32B": Shape(5120, 64, 64, 8, 128, 25600, 151936, False),
}
"""The dense models, with or without ``-Base``: the ``config.json`` of ``Qwen/<name>`` on the
Hugging Face Hub; layers, heads and tied embeddings also in arXiv 2505.09388, Table 1."""


def model_shape(model: ModelConfig) -> Shape:
    """Return the sizes of the recipe's model, without downloading anything.

    Raises:
        RecipeError: the model is neither tiny, a directory with a ``config.json``, nor a Qwen3.
    """
    if model.path == "tiny":
        tiny = model.tiny
        head_dim = tiny.hidden // tiny.heads
        sizes = (tiny.hidden, tiny.layers, tiny.heads, tiny.heads, head_dim, 2 * tiny.hidden)
        return Shape(*sizes, vocab=tiny.vocab, tied=True)
    file = Path(model.path) / "config.json"
    if file.is_file():
        return _read(file)
    name = model.path.rpartition("/")[2].removesuffix("-Base")
    if name not in QWEN3:
        raise RecipeError(
            f"The sizes of {model.path!r} are not known here: set model.path to a directory with "
            f"its config.json, or to one of {sorted(QWEN3)}."
        )
    return QWEN3[name]


def _read(file: Path) -> Shape:
    config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    try:
        heads = config["num_attention_heads"]
        return Shape(
            hidden=config["hidden_size"],
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads,
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            intermediate=config["intermediate_size"],
            vocab=config["vocab_size"],
            tied=config.get("tie_word_embeddings", True),
        )
    except KeyError as missing:
        raise RecipeError(
            f"{file} has no {missing}: `gem-core plan` knows decoders with a gated MLP (Qwen, "
            "Llama, Mistral)."
        ) from None
