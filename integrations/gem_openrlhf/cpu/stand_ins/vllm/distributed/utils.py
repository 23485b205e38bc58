"""The rendezvous of trainer and engine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class StatelessProcessGroup:
    """The place where the members meet; `PyNcclCommunicator` connects to it."""

    host: str
    port: int
    rank: int
    world_size: int

    @staticmethod
    def create(host: str, port: int, rank: int, world_size: int) -> StatelessProcessGroup:
        """Return the group that meets at ``host:port``; rank 0 serves the store."""
        return StatelessProcessGroup(host, port, rank, world_size)
