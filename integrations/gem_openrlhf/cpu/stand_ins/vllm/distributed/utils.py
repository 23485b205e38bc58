"""The rendezvous of trainer and engine."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from torch.distributed import TCPStore


@dataclass
class StatelessProcessGroup:
    """A key-value store that the members share."""

    store: TCPStore
    rank: int
    world_size: int

    @staticmethod
    def create(host: str, port: int, rank: int, world_size: int) -> StatelessProcessGroup:
        """Meet at ``host:port``; rank 0 serves the store."""
        wait = timedelta(seconds=120)
        store = TCPStore(host, port, world_size, is_master=rank == 0, timeout=wait)
        return StatelessProcessGroup(store, rank, world_size)
