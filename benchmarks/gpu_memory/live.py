"""Counts the bytes of tensors that live at one time, for tensors without data.

Under ``FakeTensorMode`` a tensor has a shape, a type and a storage of a known size, but no memory.
`LiveBytes` sees each operation, and so each storage that is made and each that is freed: the sums
are those of the same program with real tensors, and cost no memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_ITEM = torch.ops.aten._local_scalar_dense.default


class LiveBytes(TorchDispatchMode):
    """Follows the storages of the tensors that operations return.

    Enter it inside of ``FakeTensorMode``. Where a program reads a number out of a tensor, which has
    none, it gets `item`: true, 0 or 1.0. So a mask says that all of its tokens are there.

    Attributes:
        now: bytes that live now.
        peak: the most bytes that have lived at one time.
        kinds: kind of a storage (`label`) -> bytes of it at the peak; the others are "made".
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.peak = 0
        self.kinds: dict[str, int] = {}
        self._kinds: dict[str, int] = {}
        self._sizes: dict[int, int] = {}
        self._references: dict[int, weakref.ref[Any]] = {}
        self._labels: dict[int, str] = {}
        self._resize: Any = None

    def __enter__(self) -> LiveBytes:
        self._resize = torch.UntypedStorage.resize_
        torch.UntypedStorage.resize_ = _following(self, self._resize)  # sharded weights come and go
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        torch.UntypedStorage.resize_ = self._resize

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # it calls the operation on its shard, and that is counted
        if func is _ITEM:
            return item(args[0])
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.follow(leaf)
        return result

    def follow(self, tensor: torch.Tensor) -> None:
        """Count the storage of a tensor, if it is not counted yet; one on "meta" has no bytes."""
        if tensor.device.type == "meta":
            return
        storage = tensor.untyped_storage()
        key = id(storage)
        if key not in self._references:
            self._references[key] = weakref.ref(storage, lambda _: self._free(key))
            self._sizes[key] = 0
        self._set(key, storage.nbytes())

    def label(self, kind: str, tensors: Iterable[torch.Tensor]) -> None:
        """Say what the storages of these tensors are, for `kinds`."""
        for tensor in tensors:
            self.follow(tensor)
            key = id(tensor.untyped_storage())
            size = self._sizes[key]
            self._add(key, -size)
            self._labels[key] = kind
            self._add(key, size)

    def reset(self) -> None:
        """Begin to look for the peak anew."""
        self.peak = self.now
        self.kinds = dict(self._kinds)

    def _set(self, key: int, size: int) -> None:
        change = size - self._sizes[key]
        if change:
            self._sizes[key] = size
            self._add(key, change)
            if self.now > self.peak:
                self.reset()

    def _add(self, key: int, change: int) -> None:
        kind = self._labels.get(key, "made")
        self.now += change
        self._kinds[kind] = self._kinds.get(kind, 0) + change

    def _free(self, key: int) -> None:
        self._add(key, -self._sizes.pop(key))
        del self._references[key]
        self._labels.pop(key, None)


def item(tensor: torch.Tensor) -> bool | int | float:
    """Return what a program reads out of a tensor without data."""
    if tensor.dtype is torch.bool:
        return True
    return 1.0 if tensor.is_floating_point() else 0


def _following(live: LiveBytes, resize: Any) -> Any:
    def followed(storage: torch.UntypedStorage, size: int) -> Any:
        result = resize(storage, size)
        if id(storage) in live._references:
            live._set(id(storage), size)
        return result

    return followed
