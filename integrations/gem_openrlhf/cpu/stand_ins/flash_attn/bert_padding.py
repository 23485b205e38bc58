"""Packing of sequences without padding, in plain torch: shapes and results as in flash-attn."""

from __future__ import annotations

import torch
from einops import rearrange

__all__ = ["index_first_axis", "pad_input", "rearrange", "unpad_input"]

Unpadded = tuple[torch.Tensor, torch.Tensor, torch.Tensor, int, torch.Tensor]


def index_first_axis(rows: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Return the rows at ``indices``."""
    return rows[indices]


def unpad_input(hidden: torch.Tensor, attention_mask: torch.Tensor) -> Unpadded:
    """Take the padding out of [rows, tokens, ...].

    Returns:
        the tokens in one row; their places among all; where each row begins, with the end; the
        length of the longest row; the length of each row.
    """
    lengths = attention_mask.sum(dim=-1, dtype=torch.int32)
    indices = attention_mask.flatten().nonzero().flatten()
    starts = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    return hidden.flatten(0, 1)[indices], indices, starts, int(lengths.max()), lengths


def pad_input(hidden: torch.Tensor, indices: torch.Tensor, batch: int, seqlen: int) -> torch.Tensor:
    """Put the tokens of one row back to their places in [``batch``, ``seqlen``, ...]."""
    padded = hidden.new_zeros(batch * seqlen, *hidden.shape[1:])
    return padded.index_copy(0, indices, hidden).unflatten(0, (batch, seqlen))
