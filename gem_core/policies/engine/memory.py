"""How many sequences of an engine fit into the memory of a GPU."""

from __future__ import annotations

from typing import Any

from gem_core.errors import GemError
from gem_core.policies.engine.kv_store import ROWS_MULTIPLE

SHARE = 0.8
"""Share of the free memory for keys and values; the rest is for forward passes."""
GROWTH = 1.5
"""The store grows by half, so that it can be so much larger than its longest sequence."""


def token_bytes(config: Any, element_bytes: int) -> int:
    """Return the bytes of the keys and values of one token, in all layers.

    Args:
        config: of a model of transformers.
        element_bytes: bytes of one number.
    """
    text = config.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return int(2 * text.num_hidden_layers * heads * width * element_bytes)


def sequences_that_fit(
    config: Any, tokens: int | None, element_bytes: int, free_bytes: int, *, at_most: int
) -> int:
    """Return how many sequences an `Engine` can hold at the same time.

    Args:
        config: of a model of transformers, which is in memory already.
        tokens: of the longest sequence; ``None`` = the model's context.
        element_bytes: bytes of one number of keys and values.
        free_bytes: memory that is free.
        at_most: largest result.

    Raises:
        GemError: not even the smallest number fits.
    """
    text = config.get_text_config()
    longest = tokens or text.max_position_embeddings
    each = GROWTH * longest * token_bytes(config, element_bytes)
    number = int(SHARE * free_bytes / each) // ROWS_MULTIPLE * ROWS_MULTIPLE
    if number < ROWS_MULTIPLE:
        raise GemError(
            f"The evaluation keeps at least {ROWS_MULTIPLE} sequences in memory: up to "
            f"{ROWS_MULTIPLE * each / 2**30:.1f} GiB of keys and values for {longest} tokens each, "
            f"and {SHARE * free_bytes / 2**30:.1f} GiB can be used. Lower "
            "limits.max_context_tokens, use a smaller model or a GPU with more memory, or set "
            "eval.episodes=0 and evaluate the saved model with gem-core eval at an endpoint."
        )
    return min(at_most, number)
