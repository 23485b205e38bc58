"""The CPU stand-in's attention kernels against torch's own attention and its gradients."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from gem_rl2.cpu.attention import _flash_attn_varlen_backward, _flash_attn_varlen_forward


def reference(q, k, v, lengths, scale):
    """Sequence by sequence, heads repeated; [tokens, heads, size]."""
    groups = q.shape[1] // k.shape[1]
    parts = []
    for of_one in zip(q.split(lengths), k.split(lengths), v.split(lengths), strict=True):
        query, key, value = (tensor.transpose(0, 1)[None] for tensor in of_one)
        key = key.repeat_interleave(groups, 1)
        value = value.repeat_interleave(groups, 1)
        out = scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale)
        parts.append(out[0].transpose(0, 1))
    return torch.cat(parts)


@pytest.mark.parametrize("lengths", [[5, 7], [1, 9, 3], [6]])
@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (1, 1)])
def test_forward_and_backward(lengths, heads):
    generator = torch.Generator().manual_seed(0)
    tokens = sum(lengths)
    of_q, of_k = heads
    q, k, v = (
        torch.randn(tokens, n, 16, generator=generator, requires_grad=True)
        for n in (of_q, of_k, of_k)
    )
    cu = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    plain = [tensor.detach() for tensor in (q, k, v)]
    rest = (cu, cu, max(lengths), max(lengths), 0.0, 0.25, True)
    out, lse, *_ = _flash_attn_varlen_forward(*plain, *rest)
    expected = reference(q, k, v, lengths, 0.25)
    torch.testing.assert_close(out, expected, rtol=0, atol=2e-6)
    assert lse.shape == (of_q, tokens) and bool(lse.isfinite().all())
    upstream = torch.randn(out.shape, generator=generator)
    expected.backward(upstream)
    gradients = [torch.empty_like(tensor) for tensor in plain]
    _flash_attn_varlen_backward(upstream, *plain, out, lse, *gradients, *rest)
    for mine, theirs in zip(gradients, (q.grad, k.grad, v.grad), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=5e-6)


def test_what_is_missing_is_refused():
    zeros = torch.zeros(3, 1, 4)
    cu = torch.tensor([0, 3], dtype=torch.int32)
    with pytest.raises(NotImplementedError, match="dropout"):
        _flash_attn_varlen_forward(zeros, zeros, zeros, cu, cu, 3, 3, 0.1, 1.0, True)
