"""Variable-length attention in plain torch, behind the names of flash-attn's private kernels.

Sequences are padded to a rectangle, so one call is a handful of batched matrix products. Arguments
and results are those of flash-attn 2.8.3; lengths are in tokens, ``q`` is [tokens, heads, size].
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


def _padded(packed: Tensor, cu_seqlens: Tensor) -> Tensor:
    """[tokens, heads, size] -> float32 [sequences, heads, longest, size], zeros behind the ends."""
    lengths = cu_seqlens[1:] - cu_seqlens[:-1]
    parts = torch.split(packed.float(), lengths.tolist())
    return pad_sequence(list(parts), batch_first=True).transpose(1, 2)


def _flat(padded: Tensor, cu_seqlens: Tensor) -> Tensor:
    """The inverse of `_padded`."""
    lengths = cu_seqlens[1:] - cu_seqlens[:-1]
    kept = torch.arange(padded.shape[2], device=padded.device)[None] < lengths[:, None]
    return padded.transpose(1, 2)[kept]


def _grouped(heads: Tensor, groups: int) -> Tensor:
    """Repeat key/value heads so that there is one per query head."""
    return heads.repeat_interleave(groups, dim=1)


def _scores(
    q: Tensor, k: Tensor, cu_q: Tensor, cu_k: Tensor, scale: float, causal: bool, left: int = -1
) -> Tensor:
    """Attention logits [sequences, heads, queries, keys]; -inf where a query must not look.

    A query sees ``left`` keys before its own, all with -1.
    """
    queries = cu_q[1:] - cu_q[:-1]
    keys = cu_k[1:] - cu_k[:-1]
    row = torch.arange(q.shape[2], device=q.device)[None, :, None]
    column = torch.arange(k.shape[2], device=q.device)[None, None]
    visible = column < keys[:, None, None]
    if causal:  # aligned at the end, as flash-attn does since 2.1
        visible = visible & (column <= row + (keys - queries)[:, None, None])
    if left >= 0:
        visible = visible & (column >= row + (keys - queries)[:, None, None] - left)
    # A padded query sees key 0, so that its softmax is finite; it is cut away afterwards.
    visible = visible | ((row >= queries[:, None, None]) & (column == 0))
    return (q @ k.transpose(-1, -2) * scale).masked_fill(~visible[:, None], -torch.inf)


def _flash_attn_varlen_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    return_softmax: bool = False,
    block_table: Any = None,
    leftpad_k: Any = None,
    seqused_k: Any = None,
    zero_tensors: bool = False,
) -> tuple[Tensor, Tensor, None, None]:
    """Return output [tokens, heads, size] and log-sum-exp [heads, tokens]."""
    _only_plain(dropout_p, window_size_right, softcap, causal)
    groups = q.shape[1] // k.shape[1]
    scores = _scores(
        _padded(q, cu_seqlens_q),
        _grouped(_padded(k, cu_seqlens_k), groups),
        cu_seqlens_q,
        cu_seqlens_k,
        softmax_scale,
        causal,
        window_size_left,
    )
    lse = torch.logsumexp(scores, -1)
    weights = torch.exp(scores - lse[..., None])
    out = weights @ _grouped(_padded(v, cu_seqlens_k), groups)
    flat_lse = _flat(lse[..., None], cu_seqlens_q)[..., 0].transpose(0, 1)
    return _flat(out, cu_seqlens_q).to(q.dtype), flat_lse.contiguous(), None, None


def _flash_attn_varlen_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    softmax_lse: Tensor,
    dq: Tensor,
    dk: Tensor,
    dv: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    rng_state: Any = None,
    zero_tensors: bool = False,
) -> None:
    """Write the gradients into ``dq``, ``dk`` and ``dv``."""
    _only_plain(dropout_p, window_size_right, softcap, causal)
    groups = q.shape[1] // k.shape[1]
    queries = _padded(q, cu_seqlens_q)
    grads = _padded(dout, cu_seqlens_q)
    keys = _grouped(_padded(k, cu_seqlens_k), groups)
    values = _grouped(_padded(v, cu_seqlens_k), groups)
    lengths = cu_seqlens_q, cu_seqlens_k
    scores = _scores(queries, keys, *lengths, softmax_scale, causal, window_size_left)
    weights = torch.softmax(scores, -1)
    d_weights = grads @ values.transpose(-1, -2)
    d_scores = weights * (d_weights - (weights * d_weights).sum(-1, keepdim=True)) * softmax_scale

    def ungrouped(heads: Tensor) -> Tensor:
        return heads.unflatten(1, (k.shape[1], groups)).sum(2)

    dq.copy_(_flat(d_scores @ keys, cu_seqlens_q))
    dk.copy_(_flat(ungrouped(d_scores.transpose(-1, -2) @ queries), cu_seqlens_k))
    dv.copy_(_flat(ungrouped(weights.transpose(-1, -2) @ grads), cu_seqlens_k))


def _flash_attn_forward(*args: Any, **kwargs: Any) -> None:
    """Imported by ring-flash-attn, never called by RL2."""
    raise NotImplementedError("the CPU stand-in has the variable-length kernels only")


_flash_attn_backward = _flash_attn_forward


def _only_plain(dropout: float, right: int, softcap: float, causal: bool) -> None:
    """Refuse what is not computed; causal attention has no keys on the right to be limited."""
    if dropout or softcap or (right != -1 and not causal):
        raise NotImplementedError("the CPU stand-in has no dropout, softcap or window to the right")
