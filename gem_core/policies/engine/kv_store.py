"""Keys and values of many sequences, each in a slot, as a cache of transformers.

Unlike the caches of transformers, a sequence keeps its place while others come and go, so that a
batch of any slots can be computed at any time, and an episode finds its earlier turns again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache

from gem_core.policies.engine.attention import KEYS_MULTIPLE

ROWS_MULTIPLE = 8
"""Numbers of slots, and of rows of a batch, are multiples of this: see the module `attention`."""


def round_up(number: int, multiple: int) -> int:
    """Return the smallest multiple of ``multiple`` that is not below ``number``."""
    return -(-number // multiple) * multiple


class KVStore(Cache):  # type: ignore[misc]
    """The store; `select` chooses what the next forward pass of the model reads and writes.

    The last column of every slot takes what is computed only to fill up a batch.

    Attributes:
        slots: number of slots.
        columns: tokens per slot, the last column included.
        keys: one tensor per layer, (slots, heads, columns, width).
        values: like ``keys``.
    """

    layers: Sequence[Any] = ()  # of transformers; the layers here are `keys` and `values`

    def __init__(self) -> None:
        self.slots = 0
        self.columns = 0
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []
        self._rows: slice | torch.Tensor = slice(0)
        self._slots = torch.zeros(0, dtype=torch.long)
        self._columns = self._slots
        self._targets: dict[int, torch.Tensor] = {}
        self._length = 0

    def reserve(self, slots: int, tokens: int) -> None:
        """Make space for ``slots`` sequences of ``tokens`` tokens; it never shrinks."""
        wanted = max(self.slots, round_up(slots, ROWS_MULTIPLE))
        columns = max(self.columns, round_up(tokens + 1, KEYS_MULTIPLE))
        if (wanted, columns) == (self.slots, self.columns):
            return
        for tensors in (self.keys, self.values):
            for layer, old in enumerate(tensors):
                heads, width = old.shape[1], old.shape[3]
                new = old.new_zeros((wanted, heads, columns, width))
                new[: old.shape[0], :, : old.shape[2]] = old
                tensors[layer] = new
        self.slots = wanted
        self.columns = columns

    def copy(self, source: int, targets: Sequence[int], tokens: int) -> None:
        """Copy the first ``tokens`` tokens of a slot to others."""
        for tensor in (*self.keys, *self.values):
            tensor[list(targets), :, :tokens] = tensor[source, :, :tokens]

    def select(self, rows: Sequence[int], columns: torch.Tensor, length: int) -> None:
        """Choose the slots of the next forward pass.

        Args:
            rows: a slot per row of the batch; several rows may share one that is not written to.
            columns: where each new token is put, (rows, tokens).
            length: number of columns that the attention sees.
        """
        slots = torch.tensor(rows, device=columns.device)
        neighbours = list(rows) == list(range(rows[0], rows[0] + len(rows)))
        self._rows = slice(rows[0], rows[-1] + 1) if neighbours else slots
        self._slots = slots
        self._columns = columns
        self._targets.clear()
        self._length = length

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *_: Any,
        **__: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store the new tokens of a layer and return all that the attention sees.

        Args:
            key_states: (rows, heads, tokens, width).
            value_states: like ``key_states``.
            layer_idx: the layer.
        """
        if layer_idx == len(self.keys):
            self.keys.append(self._allocate(key_states))
            self.values.append(self._allocate(value_states))
        return (
            self._put(self.keys[layer_idx], key_states),
            self._put(self.values[layer_idx], value_states),
        )

    def _allocate(self, states: torch.Tensor) -> torch.Tensor:
        return states.new_zeros((self.slots, states.shape[1], self.columns, states.shape[3]))

    def _flat(self, heads: int) -> torch.Tensor:
        """Return where each row, head and token goes in a tensor flattened to (places, width)."""
        if heads not in self._targets:
            head = torch.arange(heads, device=self._slots.device)
            block = (self._slots[:, None] * heads + head) * self.columns
            self._targets[heads] = (block[:, :, None] + self._columns[:, None]).flatten()
        return self._targets[heads]

    def _put(self, tensor: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """Write ``states``; return (rows, heads, columns, width)."""
        places = self._flat(states.shape[1])
        tensor.flatten(0, 2).index_copy_(0, places, states.flatten(0, 2))
        seen = tensor[:, :, : self._length]
        if isinstance(self._rows, slice):
            return seen[self._rows]
        return seen.index_select(0, self._rows)

    def get_seq_length(self, *_: Any, **__: Any) -> int:
        """Return 0: positions and masks are passed to the model explicitly."""
        return 0

    def get_max_cache_shape(self, *_: Any, **__: Any) -> int:
        """Return the number of columns."""
        return self.columns

    @property
    def bytes_per_slot(self) -> int:
        """Bytes of one slot, 0 before the first forward pass."""
        tensors = (*self.keys, *self.values)
        return sum(t.element_size() * t[0].numel() for t in tensors) if self.slots else 0
