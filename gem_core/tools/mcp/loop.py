"""The event loop in which all MCP sessions of a process live, in a thread of its own.

So neither a caller's own loop nor other episodes are held up by a server.
"""

from __future__ import annotations

import asyncio
import os
import threading

_lock = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}


def background_loop() -> asyncio.AbstractEventLoop:
    """Return the loop of this process; a forked child gets one of its own."""
    with _lock:
        loop = _loops.get(os.getpid())
        if loop is None:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, daemon=True, name="gem-mcp").start()
            _loops.clear()
            _loops[os.getpid()] = loop
        return loop


def _forget() -> None:
    global _lock
    _lock = threading.Lock()
    _loops.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
