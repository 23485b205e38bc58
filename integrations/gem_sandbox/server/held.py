"""What the processes of a program hold without a name: files that are removed, but open or mapped.

The server looks at them in ``/proc`` where a program has no volume of its own.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

_MOST_MAPS = 1 << 20
"""Characters of a process's list of mappings, about 10,000 of them; more are never looked at."""
_REMOVED = b" (deleted)"
_SHARED_MEMORY = b"/dev/zero (deleted)"


class Unseen(Exception):
    """A process that cannot be looked at: it ends now, or hides itself."""


def count_held_bytes(pid: int, seen: set[int], most: int) -> int | None:
    """Return the bytes of the files without a name that a process holds.

    The size of one that is mapped but not open is not known; the largest that it may have counts.

    Args:
        pid: the process.
        seen: inodes that were counted already; those that are counted here are added.
        most: bytes of the largest file that it may write.

    Returns:
        ``None``: it has shared memory, or more mappings than are looked at.

    Raises:
        Unseen: see there.
    """
    try:
        total = _count_open(pid, seen)
        mapped = _find_mapped(pid)
    except (FileNotFoundError, ProcessLookupError):
        return 0
    except PermissionError as error:
        raise Unseen(str(error)) from None
    if mapped is None:
        return None
    new = mapped - seen
    seen |= new
    return total + most * len(new)


def group(leader: int) -> list[int]:
    """Return the ids of the processes of a group."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[2]) == leader and fields[0] not in b"ZX":
            found.append(int(name))
    return found


def _count_open(pid: int, seen: set[int]) -> int:
    total = 0
    folder = f"/proc/{pid}/fd"
    for name in os.listdir(folder):
        try:
            about = os.stat(f"{folder}/{name}")
        except FileNotFoundError:  # closed meanwhile
            continue
        if stat.S_ISREG(about.st_mode) and about.st_nlink == 0 and about.st_ino not in seen:
            seen.add(about.st_ino)
            total += 512 * about.st_blocks
    return total


def _find_mapped(pid: int) -> set[int] | None:
    """Return the inodes of removed files that are mapped; ``None``: see `count_held_bytes`."""
    with open(f"/proc/{pid}/maps", "rb") as file:
        text = file.read(_MOST_MAPS)
    if len(text) == _MOST_MAPS or _SHARED_MEMORY in text:
        return None
    if _REMOVED not in text:
        return set()
    return {int(line.split(None, 5)[4]) for line in text.splitlines() if line.endswith(_REMOVED)}


def processes(leader: int, *, several: bool) -> Iterable[int]:
    """Return the processes of a program: one, or where it may start ``several`` its group."""
    return group(leader) if several else (leader,)
