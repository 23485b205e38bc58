"""Philox4x32-10: random numbers as a pure function of a key and a counter.

J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3",
SC 2011. It needs no state, so that a number does not depend on what was drawn before. Only integer
arithmetic is used: the numbers are the same on every platform and with every library version.
Only the functions for tensors import torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW = 0xFFFFFFFF
_BLOCKS_AT_ONCE = 8192
"""Blocks whose intermediate results stay in the processor's cache."""


def philox(counters: Any, keys: Any) -> tuple[Any, Any, Any, Any]:
    """Return the output of many blocks.

    Args:
        counters: numpy array of uint64, (4, rows, blocks): the four words of each counter.
        keys: numpy array of uint64, (2, rows): the two words of each row's key.

    Returns:
        The four words of each block, arrays of uint64 below ``2 ** 32``, each (rows, blocks).
    """
    outer = np.ascontiguousarray(counters[0::2])  # words 0 and 2, which are multiplied
    inner = np.ascontiguousarray(counters[1::2])
    products = np.empty_like(outer)
    factors = np.array(_MULTIPLIERS, np.uint64)[:, None, None]
    steps = np.array(_KEY_STEPS, np.uint64)[:, None]
    low, half = np.uint64(_LOW), np.uint64(32)
    for _ in range(_ROUNDS):
        np.multiply(outer, factors, out=products)
        np.right_shift(products[::-1], half, out=outer)
        np.bitwise_xor(outer, inner, out=outer)
        np.bitwise_xor(outer, keys[:, :, None], out=outer)
        np.bitwise_and(products[::-1], low, out=inner)
        keys = (keys + steps) & low
    return outer[0], inner[0], outer[1], inner[1]


def philox_tensor(counters: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Return the same as `philox`, stacked, on the device of the tensors; all are int64."""
    import torch

    outer, inner = counters[0::2], counters[1::2]
    factors = torch.tensor(_MULTIPLIERS, device=keys.device)[:, None, None]
    steps = torch.tensor(_KEY_STEPS, device=keys.device)[:, None]
    for _ in range(_ROUNDS):
        products = (outer * factors).flip(0)  # wraps around: all 64 bits are kept
        outer = (products >> 32 & _LOW) ^ inner ^ keys[:, :, None]
        inner = products & _LOW
        keys = keys + steps & _LOW
    return torch.stack([outer[0], inner[0], outer[1], inner[1]])


def uniforms(seeds: Sequence[int], positions: Sequence[int], count: int) -> Any:
    """Return ``count`` numbers in (0, 1) per row, as a numpy array of float64 (rows, count).

    Args:
        seeds: the key of each row, below ``2 ** 64``.
        positions: the counter of each row.
        count: numbers per row; the first ones do not depend on it.
    """
    blocks = -(-count // 4)
    keys = _words(seeds)
    result = np.empty((len(seeds), blocks, 4))
    rows_at_once = max(1, _BLOCKS_AT_ONCE // blocks)
    for first in range(0, len(seeds), rows_at_once):
        part = slice(first, first + rows_at_once)
        counters = np.zeros((4, len(seeds[part]), blocks), np.uint64)
        counters[0] = np.arange(blocks, dtype=np.uint64)
        counters[1] = np.asarray(positions[part], np.uint64)[:, None]
        for word, numbers in enumerate(philox(counters, keys[:, part])):
            result[part, :, word] = numbers
    result += 0.5
    result *= 2.0**-32
    return result.reshape(len(seeds), -1)[:, :count]


def uniforms_on(
    device: torch.device, seeds: Sequence[int], positions: Sequence[int], count: int
) -> torch.Tensor:
    """Return the same as `uniforms`, computed on ``device``."""
    import torch

    blocks = -(-count // 4)
    keys = torch.from_numpy(_words(seeds).astype(np.int64)).to(device)
    counters = torch.zeros((4, len(seeds), blocks), dtype=torch.int64, device=device)
    counters[0] = torch.arange(blocks, device=device)
    counters[1] = torch.tensor(list(positions), device=device)[:, None]
    words = philox_tensor(counters, keys).movedim(0, -1).reshape(len(seeds), -1)
    return ((words[:, :count].double() + 0.5) * 2.0**-32).contiguous()


def _words(seeds: Sequence[int]) -> Any:
    """Return the low and the high word of each seed, uint64 (2, rows)."""
    whole = np.array([int(seed) & 0xFFFFFFFFFFFFFFFF for seed in seeds], np.uint64)
    return np.stack([whole & np.uint64(_LOW), whole >> np.uint64(32)])
