"""What a worker process does at the moment, in memory that it shares with its parent.

A message before each call would cost more than many calls, and a call that holds the interpreter
keeps its process from sending any. Each thread of a worker has a slot; it writes there which call
it begins and when, and the parent reads it only when a deadline may have passed.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import time

SLOTS = 130
"""Threads of a worker that call environments."""
_SLOT = struct.Struct("@dQQ")  # since, whether it builds, call; the call is written last
_CALL = struct.Struct("@Q")
_CALL_AT = 16
_SIZE = SLOTS * _SLOT.size


class Marks:
    """The slots of one worker, in the worker or in its parent; see `create_memory`."""

    def __init__(self, number: int) -> None:
        self._memory = mmap.mmap(number, _SIZE)

    def begin(self, slot: int, call: int, *, builds: bool) -> None:
        """Note that a thread begins a call, or builds its environment; calls count from 1."""
        # The old call goes first: at no time has a call the beginning of another one.
        self.end(slot)
        _SLOT.pack_into(self._memory, slot * _SLOT.size, time.monotonic(), builds, call)

    def end(self, slot: int) -> None:
        """Note that the call of a thread is over."""
        _CALL.pack_into(self._memory, slot * _SLOT.size + _CALL_AT, 0)

    def running(self) -> dict[int, tuple[float, bool]]:
        """Return the calls under way: since when, in ``time.monotonic()``, and whether they build.

        A slot that is being written is left out; the next look has it.
        """
        first, second = bytes(self._memory), bytes(self._memory)
        slots = zip(_SLOT.iter_unpack(first), _SLOT.iter_unpack(second), strict=True)
        return {one[2]: (one[0], bool(one[1])) for one, same in slots if one[2] and one == same}

    def close(self) -> None:
        """Release the memory."""
        self._memory.close()


def create_memory() -> int:
    """Return a new file descriptor of memory for `Marks`, which a child process may inherit."""
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("gem-worker")
    else:  # macOS
        with tempfile.TemporaryFile() as file:
            number = os.dup(file.fileno())
    os.ftruncate(number, _SIZE)
    return number
