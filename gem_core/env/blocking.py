"""Whether calls of an environment may block."""

from __future__ import annotations

from typing import Any

from gem_core.env.interface import Wrapper


def never_blocks(env: Any) -> bool:
    """Return whether calls of ``env`` need neither a thread nor a deadline of their own.

    That holds for environments and wrappers of gem_core that are not ``slow``, and for third-party
    classes with ``fast = True``. It must hold for every layer of wrappers.
    """
    if getattr(env, "slow", False):
        return False
    while True:
        kind = type(env)
        ours = kind.__module__.partition(".")[0] == "gem_core"
        if not ours and not getattr(kind, "fast", False):
            return False
        if not isinstance(env, Wrapper):
            return True
        env = env.env
