"""A cache of token ids, bounded by memory instead of the number of entries."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

MAX_BYTES = 64 * 2**20
"""Estimated memory of the cache of one tokenizer."""
_BYTES_PER_TOKEN = 40  # a pointer in a tuple, and the integer that it points to
_BYTES_PER_CHARACTER = 4
_BYTES_PER_ENTRY = 300


class TokenCache:
    """Caches the ids of the most recently used texts; safe for use by several threads.

    A text that would take more than a sixteenth of the cache is not kept.

    Attributes:
        used_bytes: estimated memory of the entries.
    """

    def __init__(
        self, encode: Callable[[str], tuple[int, ...]], max_bytes: int = MAX_BYTES
    ) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self._encode = encode
        self._entries: OrderedDict[str, tuple[int, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, text: str) -> tuple[int, ...]:
        """Return the ids of ``text``."""
        with self._lock:
            ids = self._entries.get(text)
            if ids is not None:
                self._entries.move_to_end(text)
                return ids
        ids = self._encode(text)
        if _size(text, ids) * 16 <= self.max_bytes:
            with self._lock:
                self._keep(text, ids)
        return ids

    def __len__(self) -> int:
        return len(self._entries)

    def _keep(self, text: str, ids: tuple[int, ...]) -> None:
        if text in self._entries:  # another thread was faster
            return
        self._entries[text] = ids
        self.used_bytes += _size(text, ids)
        while self.used_bytes > self.max_bytes:
            oldest, its_ids = self._entries.popitem(last=False)
            self.used_bytes -= _size(oldest, its_ids)


def _size(text: str, ids: tuple[int, ...]) -> int:
    return _BYTES_PER_ENTRY + _BYTES_PER_CHARACTER * len(text) + _BYTES_PER_TOKEN * len(ids)
