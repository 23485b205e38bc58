"""What identifies the content of a file."""

import hashlib
from pathlib import Path


def file_sha256(path: str | Path) -> str:
    """Return the hexadecimal SHA-256 of a file, which need not fit into memory."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def file_revision(path: str | Path) -> str:
    """Return what identifies the content of a file as data of an environment or a tool."""
    return f"sha256-{file_sha256(path)[:16]}"
