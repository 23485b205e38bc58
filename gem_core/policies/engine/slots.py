"""Which sequence is in which slot of the store, and which earlier tokens a prompt can reuse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

_BLOCK = 16
"""A prefix of so many tokens, or a multiple, can be found."""
_PREFIXES_PER_SLOT = 8


@dataclass(slots=True, eq=False)
class SequenceSlot:
    """One sequence.

    Attributes:
        index: its place in the store.
        tokens: all its tokens so far.
        filled: number of tokens whose keys and values are in the store.
        busy: whether a request runs in it.
        used: when it was used last, as a count.
    """

    index: int
    tokens: list[int] = field(default_factory=list)
    filled: int = 0
    busy: bool = False
    used: int = 0


class SlotTable:
    """Slots and the prefixes in them.

    Attributes:
        slots: all of them, in order.
    """

    def __init__(self) -> None:
        self.slots: list[SequenceSlot] = []
        self._clock = 0
        self._prefixes: dict[int, SequenceSlot] = {}

    def __len__(self) -> int:
        return len(self.slots)

    def drop(self) -> None:
        """Forget all keys and values: the weights changed. Running requests keep their tokens."""
        self._prefixes.clear()
        for slot in self.slots:
            slot.filled = 0
            if not slot.busy:
                slot.tokens = []

    def longest(self, prompt: Sequence[int]) -> tuple[SequenceSlot | None, int]:
        """Return the slot that has the most leading tokens of ``prompt``, and how many.

        The last token of a prompt is never among them, because its logits are needed.
        """
        known = self._prefixes
        matches = []
        key = 0
        for length, token in enumerate(prompt[:-1], start=1):
            key = hash((key, token))
            if key in known:
                matches.append((known[key], length))
        for slot, length in reversed(matches):
            if slot.filled >= length and slot.tokens[:length] == prompt[:length]:
                return slot, length
        return None, 0

    def free(self, limit: int) -> SequenceSlot | None:
        """Return a slot without a request: an empty one, a new one, or the least recently used.

        Args:
            limit: number of slots from which on one is taken from an earlier sequence.

        Returns:
            ``None`` if all ``limit`` slots are busy.
        """
        idle = [slot for slot in self.slots if not slot.busy]
        empty = [slot for slot in idle if not slot.filled]
        if empty:
            return empty[0]
        if len(self.slots) < limit:
            self.slots.append(SequenceSlot(len(self.slots)))
            return self.slots[-1]
        return min(idle, key=lambda slot: slot.used, default=None)

    def take(self, slot: SequenceSlot, tokens: list[int], filled: int) -> None:
        """Begin a request in ``slot``; its first ``filled`` tokens are in the store."""
        slot.tokens = tokens
        slot.filled = filled
        slot.busy = True

    def release(self, slot: SequenceSlot) -> None:
        """End the request in ``slot``; what it computed can be reused."""
        self._clock += 1
        slot.used = self._clock
        slot.busy = False
        self.remember(slot, slot.filled)

    def remember(self, slot: SequenceSlot, length: int) -> None:
        """Make the first ``length`` tokens of ``slot``, and blocks of them, known to `longest`."""
        limit = max(_PREFIXES_PER_SLOT * len(self.slots), sum(s.filled for s in self.slots) // 4)
        if len(self._prefixes) > limit:
            self._prefixes.clear()  # most of them are of sequences that are gone
        key = 0
        for place, token in enumerate(slot.tokens[:length], start=1):
            key = hash((key, token))
            if place % _BLOCK == 0 or place == length:
                self._prefixes[key] = slot
