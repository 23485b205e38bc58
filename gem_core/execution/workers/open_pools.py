"""The pools that a process has open: closed when it ends, forgotten in its forked children."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Generic, Protocol, TypeVar


class Pool(Protocol):
    """What has processes or connections that a forked child must not use."""

    def close(self) -> None:
        """End them."""

    def forget(self) -> None:
        """Leave them to the parent; called in a forked child."""


PoolType = TypeVar("PoolType", bound=Pool)


class OpenPools(Generic[PoolType]):
    """A set of pools that keeps none of them alive; it serves its process until the end."""

    def __init__(self) -> None:
        self._pools: weakref.WeakSet[PoolType] = weakref.WeakSet()
        atexit.register(self.close)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def add(self, pool: PoolType) -> None:
        """Note a pool that was opened."""
        self._pools.add(pool)

    def discard(self, pool: PoolType) -> None:
        """Forget a pool that was closed, or was forgotten before."""
        self._pools.discard(pool)

    def close(self) -> None:
        """Close all of them."""
        for pool in list(self._pools):
            pool.close()

    def _forget(self) -> None:
        for pool in list(self._pools):
            pool.forget()
        self._pools.clear()
