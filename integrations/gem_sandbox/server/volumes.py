"""A slot's own file system in memory, whose size the kernel holds.

What a program removed but holds open or mapped counts too, and a full one is full for its owner
only.
"""

from __future__ import annotations

import os

from . import libc
from .folders import MOST_FILES

OWN = "own"
"""The server mounts a volume for each slot, and sets its size for each call."""
GIVEN = "given"
"""Volumes of a fixed size are mounted already, as bubblewrap does it."""
_NO_SUID, _NO_DEVICES, _REMOUNT = 1 << 1, 1 << 2, 1 << 5
_FILES = MOST_FILES + 8  # the folders that are there, and their parents


def mount(folder: str, uid: int | None, size: int) -> None:
    """Mount a volume over an empty folder, for a user; ``None``: the server's."""
    owner = os.getuid() if uid is None else uid
    group = os.getgid() if uid is None else uid
    data = f"size={_pages(size)},nr_inodes={_FILES},mode=0700,uid={owner},gid={group}"
    libc.mount("tmpfs", folder, "tmpfs", _NO_SUID | _NO_DEVICES, data)


def resize(folder: str, size: int) -> None:
    """Set the size of a volume.

    Raises:
        OSError: it holds more.
    """
    libc.mount("none", folder, None, _REMOUNT | _NO_SUID | _NO_DEVICES, f"size={_pages(size)}")


def usage(folder: str) -> int | None:
    """Return the bytes that a volume holds; ``None``: more files than are allowed."""
    about = os.statvfs(folder)
    if about.f_files - about.f_ffree > MOST_FILES:
        return None
    return (about.f_blocks - about.f_bfree) * about.f_frsize


def _pages(size: int) -> int:
    """Return a size in whole pages; tmpfs takes 0 for no limit."""
    page = os.sysconf("SC_PAGE_SIZE")
    return max(page, -(-size // page) * page)
