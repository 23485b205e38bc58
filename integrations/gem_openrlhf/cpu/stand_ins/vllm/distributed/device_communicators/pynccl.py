"""Broadcast through a store, in place of NCCL."""

from __future__ import annotations

from typing import Any

from gem_openrlhf.cpu.store import StoreCommunicator
from vllm.distributed.utils import StatelessProcessGroup


class PyNcclCommunicator(StoreCommunicator):
    """As in vLLM: made of a group of processes that know of each other."""

    def __init__(self, group: StatelessProcessGroup, device: Any = None) -> None:
        super().__init__(group.host, group.port, group.rank, group.world_size)
