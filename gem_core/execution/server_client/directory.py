"""Which of several servers gets the next session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

DOWN_S = 5.0
"""Seconds for which a server that could not be reached is asked last."""


class Directory:
    """The addresses of servers and how many sessions are open on each."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = tuple(dict.fromkeys(addresses))
        self._open: Counter[str] = Counter()
        self._down_until: dict[str, float] = {}

    @property
    def open(self) -> int:
        """The sessions that are open."""
        return self._open.total()

    def in_order(self, now: float) -> list[str]:
        """Return the addresses: those that could be reached first, then by open sessions."""

        def rank(address: str) -> tuple[bool, int]:
            return self._down_until.get(address, now) > now, self._open[address]

        return sorted(self.addresses, key=rank)

    def add_session(self, address: str) -> None:
        """Note that a session is being opened."""
        self._open[address] += 1

    def remove_session(self, address: str) -> None:
        """Note that a session is over, or was not opened."""
        self._open[address] -= 1

    def mark_down(self, address: str, now: float) -> None:
        """Note that a server could not be reached."""
        self._down_until[address] = now + DOWN_S
