"""Attention for the engine: the result of a row is the same bits in every batch.

On a CPU, matrix products of one to three rows use another kernel than those of four or more, whose
sums differ in the last bit; a sum over keys depends on a length that is not a multiple of the
vector length; and a matrix product divides a long sum by its length, torch's own attention too.
With at least `QUERIES` queries, keys padded to a multiple of `KEYS_MULTIPLE`
(`gem_core.policies.engine.kv_store`) and values summed in blocks of `KEYS_AT_ONCE`, a token's keys,
values and logits do not depend on the other rows, on the padding, or on whether it was read in a
prompt or sampled.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from gem_core.errors import GemError

NAME = "gem_core_engine"
"""Name of the implementation in transformers."""
QUERIES = 4
"""Fewer queries than these are filled up."""
KEYS_MULTIPLE = 16
"""Lengths of the keys that the attention sees are multiples of this."""
KEYS_AT_ONCE = 128
"""Values are added up in blocks of as many keys, one block after the other."""
_WEIGHTS_AT_ONCE = 2**25  # 128 MiB; more only if 64 queries have more


def attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **unsupported: Any,
) -> tuple[torch.Tensor, None]:
    """Compute attention; the signature is that of transformers' attention functions.

    Args:
        module: the attention layer; not used.
        query: (rows, heads, queries, width).
        key: (rows, key heads, keys, width).
        value: like ``key``.
        attention_mask: (rows, 1, queries, keys); 0 on the first keys, which a query sees, and minus
            infinity on all others.
        scaling: factor of the products; ``None`` = 1 / sqrt(width).
        sliding_window: number of latest keys that a query sees; ``None`` = all.
        unsupported: other keyword arguments of transformers.

    Raises:
        GemError: the model's attention has a feature that is not implemented.
    """
    for name in ("softcap", "s_aux"):
        if unsupported.get(name) is not None:
            raise GemError(
                f"gem_core's engine has no attention with {name!r}, which this model needs: use "
                "another generation engine (hardware.engine)."
            )
    if sliding_window is not None:
        attention_mask = _apply_window(attention_mask, sliding_window)
    rows, heads, queries, width = query.shape
    key_heads = key.shape[1]
    groups = heads // key_heads
    # The heads of a group become more queries of one head: their keys are not copied.
    query = query.reshape(rows, key_heads, groups * queries, width)
    attention_mask = attention_mask.repeat(1, 1, groups, 1)
    if groups * queries < QUERIES:
        query = query.repeat(1, 1, QUERIES, 1)
        attention_mask = attention_mask.repeat(1, 1, QUERIES, 1)
    compute = _attend_in_blocks if query.device.type == "cpu" else _attend_by_torch
    out = compute(query, key, value, attention_mask, width**-0.5 if scaling is None else scaling)
    out = out[:, :, : groups * queries].reshape(rows, heads, queries, -1).to(value.dtype)
    return out.transpose(1, 2).contiguous(), None


def _attend_by_torch(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, scale: float
) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=scale
    )


def _attend_in_blocks(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, scale: float
) -> torch.Tensor:
    """Return the sum of the values by weight; a block that a query does not see adds zeros."""
    keys, values = key.float().transpose(-1, -2), value.float().split(KEYS_AT_ONCE, -2)
    most = max(64, _WEIGHTS_AT_ONCE // keys[..., :1, :].numel() // 64 * 64)
    parts = []
    for queries, hidden in zip(query.split(most, 2), mask.split(most, 2), strict=True):
        weights = torch.softmax(queries.float() * scale @ keys + hidden, -1)
        blocks = zip(weights.split(KEYS_AT_ONCE, -1), values, strict=True)
        parts.append(functools.reduce(torch.add, (part @ block for part, block in blocks)))
    return torch.cat(parts, 2)


def _apply_window(mask: torch.Tensor, window: int) -> torch.Tensor:
    """Hide all keys but the last ``window`` of those that each query sees."""
    last = (mask == 0).sum(-1, keepdim=True) - 1
    columns = torch.arange(mask.shape[-1], device=mask.device)
    return mask.masked_fill(columns <= last - window, -torch.inf)


class EngineMode:
    """A context in which a model uses `attend` and evaluation mode; it is as before afterwards."""

    def __init__(self, model: Any) -> None:
        configs = (model.config, model.config.get_text_config())
        self.configs = list({id(config): config for config in configs}.values())
        self.modules = list(model.modules())
        self._before: list[Any] = []
        self._training: list[Any] = []

    def __enter__(self) -> None:
        self._before = [config._attn_implementation for config in self.configs]
        self._training = [module for module in self.modules if module.training]
        for module in self._training:
            module.training = False
        for config in self.configs:
            config._attn_implementation = NAME

    def __exit__(self, *_: object) -> None:
        for config, implementation in zip(self.configs, self._before, strict=True):
            config._attn_implementation = implementation
        for module in self._training:
            module.training = True


ALL_ATTENTION_FUNCTIONS.register(NAME, attend)
