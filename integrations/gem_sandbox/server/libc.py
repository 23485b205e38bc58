"""System calls that Python's standard library does not have."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

_library = ctypes.CDLL(None, use_errno=True)
_library.syscall.restype = ctypes.c_long

# Looked up now: a first look-up after a fork would be paid by every program.
_syscall = _library.syscall
_prctl = _library.prctl

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_CAPABILITY_VERSION_3 = 0x20080522
_HEADER = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
_NONE = (ctypes.c_uint32 * 6)(0, 0, 0, 0, 0, 0)  # effective, permitted, inheritable; twice


def call(name: str, number: int, *arguments: object) -> int:
    """Make a system call by its number.

    Args:
        name: what the error message calls it.
        number: its number on this architecture.
        arguments: integers and `ctypes` objects.

    Raises:
        OSError: the kernel refused it.
    """
    passed = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = int(_syscall(ctypes.c_long(number), *passed))
    if result < 0:
        raise _error(name)
    return result


def no_new_privs() -> None:
    """Give up gaining rights by executing a file; needed before seccomp and Landlock."""
    _set(_PR_SET_NO_NEW_PRIVS, 1)


def die_with_parent(signal_number: int, parent: int) -> None:
    """Get a signal when the parent process ends; a later change of uid undoes this.

    Args:
        signal_number: the signal.
        parent: process id of the parent.

    Raises:
        ProcessLookupError: the parent has ended already.
    """
    _set(_PR_SET_PDEATHSIG, signal_number)
    if os.getppid() != parent:
        raise ProcessLookupError(f"the parent process {parent} has ended")


@contextlib.contextmanager
def as_user(uid: int | None) -> Iterator[None]:
    """Have the rights of a user, in files and in ``/proc``; ``None``: no change.

    Args:
        uid: its uid and gid.
    """
    if uid is None:
        yield
        return
    own, group = os.geteuid(), os.getegid()
    _library.setfsgid(uid)
    _library.setfsuid(uid)
    try:
        yield
    finally:
        _library.setfsuid(own)
        _library.setfsgid(group)


def let_user_look() -> None:
    """Let processes of this user look at this one, also after a change of uid."""
    _set(_PR_SET_DUMPABLE, 1)


def adopt_orphans() -> None:
    """Become the parent of all descendants whose parent ends."""
    _set(_PR_SET_CHILD_SUBREAPER, 1)


def drop_capabilities() -> None:
    """Give up every capability for ever."""
    if _library.capset(_HEADER, _NONE) != 0:
        raise _error("capset")


def unshare(flags: int) -> None:
    """Move this process to new namespaces."""
    if _library.unshare(flags) != 0:
        raise _error("unshare")


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """Mount a file system."""
    values = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    source_b, target_b, kind_b, data_b = values
    if _library.mount(source_b, target_b, kind_b, ctypes.c_ulong(flags), data_b) != 0:
        raise _error(f"mount {target}")


def unmount(target: str) -> None:
    """Take a mount out of the tree, also one that is in use."""
    detach = 2
    if _library.umount2(os.fsencode(target), detach) != 0:
        raise _error(f"umount {target}")


def _set(option: int, value: int) -> None:
    if _prctl(option, value, 0, 0, 0) != 0:
        raise _error("prctl")


def _error(name: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{name}: {os.strerror(number)}")
