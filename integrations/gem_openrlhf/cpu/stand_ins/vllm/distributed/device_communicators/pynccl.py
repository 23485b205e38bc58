"""Broadcast through the store, in place of NCCL."""

from __future__ import annotations

from typing import Any

import torch

from vllm.distributed.utils import StatelessProcessGroup


class PyNcclCommunicator:
    """Broadcasts tensors one after the other; all members call it in the same order."""

    def __init__(self, group: StatelessProcessGroup, device: Any = None) -> None:
        self.group = group
        self.count = 0

    def broadcast(self, tensor: torch.Tensor, src: int = 0, stream: Any = None) -> None:
        """Send ``tensor`` from ``src``, or receive it in place."""
        store = self.group.store
        key = f"broadcast/{self.count}"
        self.count += 1
        if self.group.rank == src:
            raw = tensor.detach().contiguous().view(torch.uint8).numpy().tobytes()
            store.set(key, raw)
            if self.count > 1 and self.group.world_size == 2:
                store.delete_key(f"broadcast/{self.count - 2}")  # the peer asked for this one since
            return
        received = bytearray(store.get(key))
        tensor.copy_(torch.frombuffer(received, dtype=tensor.dtype).view(tensor.shape))
