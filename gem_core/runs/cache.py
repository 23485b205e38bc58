"""Where what is computed once is kept."""

from __future__ import annotations

import os
from pathlib import Path


def cache_root() -> Path:
    """Return ``$GEM_CORE_CACHE``, by default ``~/.cache/gem-core``."""
    root = os.environ.get("GEM_CORE_CACHE")
    return Path(root) if root else Path.home() / ".cache" / "gem-core"
