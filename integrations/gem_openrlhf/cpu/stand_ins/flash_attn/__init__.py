"""Stand-in for flash-attn on a CPU: its names can be imported, its kernels cannot be called."""

from __future__ import annotations

from typing import Any, NoReturn

__version__ = "2.8.3"


def unavailable(*_: Any, **__: Any) -> NoReturn:
    """Raise: packing and ring attention need the real package on a GPU."""
    raise NotImplementedError("ds.packing_samples and ring attention need the real flash-attn.")
