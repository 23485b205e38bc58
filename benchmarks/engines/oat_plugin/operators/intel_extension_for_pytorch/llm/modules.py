"""Attention over a paged cache in plain torch, under the names of Intel's extension for PyTorch.

vLLM 0.8 takes its attention on a CPU from there, or from operators of its own that are compiled for
torch 2.6. Intel's extension has releases for fewer versions of torch than Oat's set.

A cache has the shape [blocks, key heads, block size, head size].
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


class PagedAttention:
    """What vLLM calls: write to the cache, and attend to it in decoding and in prefilling."""

    @staticmethod
    def reshape_and_cache(
        key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slots: Tensor
    ) -> None:
        """Write the keys and values of tokens, [tokens, key heads, head size], to their slots."""
        kept = slots >= 0  # padding has a negative one
        slots = slots[kept].long()
        size = key_cache.shape[2]
        key_cache[slots // size, :, slots % size] = key[kept]
        value_cache[slots // size, :, slots % size] = value[kept]

    @staticmethod
    def single_query_cached_kv_attention(
        output: Tensor,
        query: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        head_mapping: Tensor,
        scale: float,
        block_tables: Tensor,
        context_lens: Tensor,
        block_size: int,
        max_context_len: int,
        alibi_slopes: Any,
    ) -> None:
        """Write to ``output`` the attention of one token per sequence, [sequences, heads, size].

        Args:
            output: the result.
            query: of each sequence's last token.
            key_cache: of all sequences.
            value_cache: of all sequences.
            head_mapping: key head of each head.
            scale: of the scores.
            block_tables: blocks of each sequence, [sequences, blocks].
            context_lens: tokens of each sequence, the last one included.
            block_size: tokens of a block.
            max_context_len: the longest.
            alibi_slopes: must be None.
        """
        _require_none(alibi_slopes)
        keys = _gathered(key_cache, block_tables, max_context_len)[:, head_mapping.long()]
        values = _gathered(value_cache, block_tables, max_context_len)[:, head_mapping.long()]
        visible = torch.arange(max_context_len) < context_lens[:, None]
        result = scaled_dot_product_attention(
            query[:, :, None], keys, values, attn_mask=visible[:, None, None], scale=scale
        )
        output.copy_(result[:, :, 0])

    @staticmethod
    def flash_attn_varlen_func(
        output: Tensor,
        query: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        query_starts: Tensor,
        key_starts: Tensor,
        max_query_len: int,
        max_key_len: int,
        scale: float,
        causal: bool,
        block_tables: Tensor,
        alibi_slopes: Any,
    ) -> None:
        """Write to ``output`` the attention of the last tokens of each sequence to all of it.

        Args:
            output: the result, [tokens, heads, size].
            query: of the tokens that were not in the cache, sequence after sequence.
            key_cache: of all sequences, those tokens included.
            value_cache: as ``key_cache``.
            query_starts: first token of each sequence in ``query``, and the end of the last one.
            key_starts: the same, counting all tokens of a sequence.
            max_query_len: the longest.
            max_key_len: the longest.
            scale: of the scores.
            causal: must be true.
            block_tables: blocks of each sequence, [sequences, blocks].
            alibi_slopes: must be None.
        """
        _require_none(alibi_slopes)
        if not causal:
            raise NotImplementedError("only causal attention is implemented")
        repeats = query.shape[1] // key_cache.shape[1]
        queries, lengths = query_starts.tolist(), key_starts.diff().tolist()
        for number, length in enumerate(lengths):
            part = slice(queries[number], queries[number + 1])
            table = block_tables[number : number + 1]
            keys = _gathered(key_cache, table, length).repeat_interleave(repeats, 1)
            values = _gathered(value_cache, table, length).repeat_interleave(repeats, 1)
            count = part.stop - part.start
            visible = torch.ones(count, length, dtype=torch.bool).tril(length - count)
            rows = query[part].transpose(0, 1)[None]
            result = scaled_dot_product_attention(
                rows, keys, values, attn_mask=visible, scale=scale
            )
            output[part] = result[0].transpose(0, 1)


def _gathered(cache: Tensor, block_tables: Tensor, length: int) -> Tensor:
    """Return the first tokens of sequences, [sequences, key heads, length, head size]."""
    blocks = cache[block_tables.long()]  # [sequences, blocks, key heads, block size, head size]
    return blocks.transpose(1, 2).flatten(2, 3)[:, :, :length]


def _require_none(alibi_slopes: Any) -> None:
    if alibi_slopes is not None:
        raise NotImplementedError("attention with ALiBi slopes is not here")
