"""Broadcast of tensors through a TCP store: the weight sync of a machine without NCCL."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
from torch.distributed import TCPStore

WAIT = timedelta(seconds=300)


class StoreCommunicator:
    """Has the one method of vLLM's communicator that OpenRLHF calls, in the same order everywhere.

    Args:
        host: where rank 0 serves the store.
        port: its port.
        rank: of this process; 0 is the trainer.
        world_size: trainer and engines.
    """

    def __init__(self, host: str, port: int, rank: int, world_size: int) -> None:
        self.store = TCPStore(host, port, world_size, is_master=rank == 0, timeout=WAIT)
        self.rank = rank
        self.world_size = world_size
        self.count = 0

    def broadcast(self, tensor: torch.Tensor, src: int = 0, stream: Any = None) -> None:
        """Send ``tensor`` from ``src``, or receive it in place."""
        key = f"broadcast/{self.count}"
        self.count += 1
        if self.rank == src:
            raw = tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes()
            self.store.set(key, raw)
            if self.count > 1 and self.world_size == 2:
                # The peer asked for this one since it had the one before.
                self.store.delete_key(f"broadcast/{self.count - 2}")
            return
        received = torch.frombuffer(bytearray(self.store.get(key)), dtype=torch.uint8)
        tensor.copy_(received.view(tensor.dtype).view(tensor.shape))


def join(host: str, port: int, rank: int, world_size: int, device: Any) -> StoreCommunicator:
    """Join the group of a weight sync; the arguments are those of OpenRLHF's own function."""
    return StoreCommunicator(host, port, rank, world_size)
