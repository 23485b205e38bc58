"""bm25s, imported so that it leaves the GPU alone."""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from typing import Any

_lock = threading.Lock()


def load_bm25s() -> Any:
    """Return the module bm25s.

    bm25s imports JAX where that is installed, and calls it at once; JAX then takes three quarters
    of the first GPU's memory, which training needs. Scores are sorted here by numpy, so bm25s is
    imported as if there were no JAX, unless the program has imported one of the two itself.

    Raises:
        ImportError: it is not installed.
    """
    with _lock:
        if "bm25s" in sys.modules or "jax" in sys.modules:
            return import_module("bm25s")
        sys.modules["jax"] = None  # type: ignore[assignment]  # makes an import of it fail
        try:
            return import_module("bm25s")
        finally:
            del sys.modules["jax"]
