"""Where what is computed once is kept."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def cache_root() -> Path:
    """Return ``$GEM_CORE_CACHE``, by default ``~/.cache/gem-core``."""
    root = os.environ.get("GEM_CORE_CACHE")
    return Path(root) if root else Path.home() / ".cache" / "gem-core"


def cached_folder(kind: str, settings: dict[str, Any], build: Callable[[Path], None]) -> Path:
    """Return the folder of what ``settings`` describe; it is built if the cache does not have it.

    Only one process builds it, the others wait. It is built beside its place and renamed, so that
    a build which is killed leaves no incomplete folder.

    Args:
        kind: folder of the cache.
        settings: everything that the content depends on, as JSON; their hash is the folder's name.
        build: writes the content into the empty folder that it is given.
    """
    from filelock import FileLock

    folder = folder_of(kind, settings)
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_suffix(".lock")):
            if not folder.exists():
                _build_beside(folder, build)
    return folder


def folder_of(kind: str, settings: dict[str, Any]) -> Path:
    """Return where `cached_folder` keeps what ``settings`` describe, whether it is there or not."""
    return cache_root() / kind / digest(json.dumps(settings, sort_keys=True))


def _build_beside(folder: Path, build: Callable[[Path], None]) -> None:
    partial = Path(tempfile.mkdtemp(prefix=folder.name + ".partial-", dir=folder.parent))
    try:
        build(partial)
        partial.chmod(0o755)  # mkdtemp's 0o700 would hide a shared cache from other users
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial)
        raise


def digest(text: str) -> str:
    """Return the first 16 hexadecimal digits of a text's SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
