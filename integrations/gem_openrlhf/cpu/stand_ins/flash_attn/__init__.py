"""Stand-in for flash-attn on a CPU: packing works, kernels and ring attention cannot be called."""

from __future__ import annotations

from typing import Any, NoReturn

__version__ = "2.8.3"


def unavailable(*_: Any, **__: Any) -> NoReturn:
    """Raise: ring attention needs the real package on a GPU."""
    raise NotImplementedError("Ring attention needs the real flash-attn.")
