"""Namespaces of the server's own: network, processes, IPC, and a root folder with nothing private.

The programs see Python, the system's libraries and the folders of the slots, which are in memory;
all else does not exist for them.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable

from . import libc
from .syscalls import NUMBERS

WORK = "/work"
"""The only folder of the new root that can be written."""
_NEW_NAMESPACES = 0x00020000 | 0x20000000 | 0x40000000 | 0x08000000 | 0x04000000
_NEW_USER = 0x10000000
_READ_ONLY, _NO_SUID, _NO_DEVICES, _REMOUNT, _BIND, _RECURSIVE, _PRIVATE = (
    1 << bit for bit in (0, 1, 2, 5, 12, 14, 18)
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
_ROOT = "size=16m,nr_inodes=20000,mode=0755"  # it holds no file, only places for mounts


def enter(folder: str, readable: Iterable[str]) -> None:
    """Move this process to new namespaces; it goes on as their first process.

    The process that called this stays outside and only waits.

    Args:
        folder: an empty folder, over which the new root is mounted.
        readable: the files, folders and devices that are to be seen.

    Raises:
        OSError: this machine does not allow it.
    """
    _unshare()
    child = os.fork()
    if child:
        _wait(child)
    libc.die_with_parent(signal.SIGKILL, 0)  # the parent is outside, and has no number here
    libc.mount("none", "/", None, _RECURSIVE | _PRIVATE)
    _make_root(folder, readable)


def _unshare() -> None:
    uid = os.getuid()
    gid = os.getgid()
    if uid == 0:
        try:
            libc.unshare(_NEW_NAMESPACES)
            return
        except PermissionError:  # a container's root: try as any other user
            pass
    libc.unshare(_NEW_NAMESPACES | _NEW_USER)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _wait(child: int) -> None:
    """Wait for the inner server, without holding its sockets, and end as it ends."""
    os.closerange(0, 1)
    os.closerange(3, 4096)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os._exit(status if status >= 0 else 128 - status)


def _make_root(root: str, readable: Iterable[str]) -> None:
    libc.mount("tmpfs", root, "tmpfs", _NO_SUID | _NO_DEVICES, _ROOT)
    for path in readable:
        _show(root, path)
    os.mkdir(root + WORK, 0o711)
    os.chdir(root)
    libc.call("pivot_root", NUMBERS["pivot_root"], b".", b".")
    libc.unmount(".")
    os.chdir("/")


def _show(root: str, path: str) -> None:
    """Make a file or folder of the old root visible at the same path, read-only."""
    target = root + path
    if os.path.lexists(target) or not os.path.exists(path):
        return
    os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
    if os.path.islink(path) and os.path.isdir(path):  # /lib is a link to /usr/lib on most systems
        os.symlink(os.readlink(path), target)
        return
    if os.path.isdir(path):
        os.mkdir(target, 0o755)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    libc.mount(path, target, None, _BIND | _RECURSIVE)
    if path not in _DEVICES:
        libc.mount(
            "none",
            target,
            None,
            _BIND | _REMOUNT | _READ_ONLY | _NO_SUID | _find_locked_flags(path),
        )


def _find_locked_flags(path: str) -> int:
    """Return the mount flags that a user namespace may not take away."""
    known = (
        (os.ST_NODEV, _NO_DEVICES),
        (os.ST_NOEXEC, 1 << 3),
        (os.ST_NOATIME, 1 << 10),
        (os.ST_NODIRATIME, 1 << 11),
        (os.ST_RELATIME, 1 << 21),
    )
    flags = os.statvfs(path).f_flag
    return sum(mount_flag for flag, mount_flag in known if flags & flag)
