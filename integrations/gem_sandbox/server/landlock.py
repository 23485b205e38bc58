"""Landlock: which files a process can open, and which it can write."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable

from . import libc

# The numbers are the same on every architecture.
_CREATE_RULESET = 444
_ADD_RULE = 445
_RESTRICT_SELF = 446

_EXECUTE = 1 << 0
_WRITE_FILE = 1 << 1
_READ_FILE = 1 << 2
_READ_DIR = 1 << 3
_REMOVE_DIR = 1 << 4
_REMOVE_FILE = 1 << 5
_MAKE_DIR = 1 << 7
_MAKE_REG = 1 << 8
_MAKE_SYM = 1 << 12
_REFER = 1 << 13
_TRUNCATE = 1 << 14
_IOCTL_DEV = 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV

READ = _READ_FILE | _READ_DIR
EXECUTE = READ | _EXECUTE
"""Read and execute."""
_CHANGE = _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _MAKE_SYM | _REFER
WRITE = READ | _WRITE_FILE | _TRUNCATE | _CHANGE
"""Everything below a folder but to execute, and to make devices, pipes and sockets."""


SCOPES_SIGNALS = 6
"""The first version that keeps signals inside."""


def abi() -> int:
    """Return the kernel's version of Landlock; 0: it has none, or it is switched off."""
    version_query = 1
    try:
        return libc.call("landlock_create_ruleset", _CREATE_RULESET, None, 0, version_query)
    except OSError:
        return 0


def rights_of_version(version: int) -> int:
    """Return the rights on files that a version of Landlock can restrict."""
    bits = 13 if version == 1 else 14 if version == 2 else 15 if version < 5 else 16
    return (1 << bits) - 1


def ruleset(rules: Iterable[tuple[str, int]], version: int) -> int:
    """Return the descriptor of a rule set: everything is denied but ``rules``.

    TCP is denied too from version 4 on; from 6 on, signals and abstract Unix sockets that lead out.

    Args:
        rules: pairs of a path that exists and the rights below it.
        version: what `abi` returned.

    Raises:
        OSError: a path cannot be opened, or the kernel refuses.
    """
    files = rights_of_version(version)
    network = 3 if version >= 4 else 0
    scoped = 3 if version >= SCOPES_SIGNALS else 0
    size = 8 if version < 4 else 16 if version < SCOPES_SIGNALS else 24
    attributes = struct.pack("QQQ", files, network, scoped)[:size]
    made = libc.call(
        "landlock_create_ruleset", _CREATE_RULESET, ctypes.c_char_p(attributes), size, 0
    )
    for path, rights in rules:
        below = rights if os.path.isdir(path) else rights & _OF_FILES
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = struct.pack("=Qi", below & files, descriptor)
        path_beneath = 1
        libc.call("landlock_add_rule", _ADD_RULE, made, path_beneath, ctypes.c_char_p(rule), 0)
        os.close(descriptor)
    return made


def restrict(descriptor: int) -> None:
    """Confine this process to a rule set for ever. `libc.no_new_privs` comes first."""
    libc.call("landlock_restrict_self", _RESTRICT_SELF, descriptor, 0)
