"""Python's library and the system's: what a program may read, and how imports reach it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

FIRST = 10
"""The first descriptor of the open folders of the standard library, see `open_folders`."""
_original = os.__file__


def readable_paths() -> list[str]:
    """Return what a program may read: Python's installation and the system's libraries."""
    paths = [
        *_library_folders(),
        os.path.join(sys.base_prefix, "lib"),
        os.path.join(sys.base_exec_prefix, "lib"),
        "/usr/lib",
        "/usr/local/lib",
        "/lib",
        "/lib64",
        "/usr/lib64",
        "/usr/share/zoneinfo",
        "/etc/localtime",
        "/etc/ld.so.cache",
        "/dev/urandom",
    ]
    return [path for path in dict.fromkeys(paths) if not _inside_another(path, paths)]


def program_paths() -> list[str]:
    """Return what a program may execute where it may execute anything: the system's programs.

    Their libraries are among them: the loader of a program is executed too.
    """
    paths = [
        "/bin",
        "/usr/bin",
        "/lib",
        "/lib64",
        "/usr/lib",
        "/usr/lib64",
        "/usr/libexec/git-core",
        "/usr/share/git-core",
        "/etc/alternatives",
    ]
    return [path for path in paths if os.path.isdir(path)]


def _inside_another(path: str, paths: list[str]) -> bool:
    return any(path.startswith(other + "/") for other in paths)


def open_folders(packages: tuple[str, ...] = ()) -> int:
    """Let imports use open folders, which do not depend on the rights of the folders above them.

    Python may be installed below a private folder, which the programs' user cannot enter.

    Args:
        packages: more folders to import from.

    Returns:
        The number of descriptors, from `FIRST` on.

    Raises:
        OSError: the library itself is private.
    """
    folders = [*_library_folders(), *packages]
    for folder in folders:
        if os.stat(folder).st_mode & 0o5 != 0o5:
            raise OSError(
                f"The modules in {folder} cannot be read by the user that programs run as: "
                f"make it readable for all (chmod -R o+rX {folder})"
            )
    if not os.path.isdir("/proc/self/fd"):
        raise OSError(
            f"Python's library {folders[0]} lies in a private folder and /proc is missing"
        )
    moved = {}
    for number, folder in enumerate(folders, FIRST):
        descriptor = os.open(folder, os.O_RDONLY)
        if descriptor != number:
            os.dup2(descriptor, number, inheritable=False)
            os.close(descriptor)
        moved[folder] = f"/proc/self/fd/{number}"
    sys.path[:] = [moved.get(path, path) for path in sys.path]
    sys.path_importer_cache.clear()
    for module in list(sys.modules.values()):  # packages may import more modules later
        where = getattr(module, "__path__", None)
        if isinstance(where, list):
            where[:] = [_move_path(path, moved) for path in where]
    return len(folders)


def _library_folders() -> list[str]:
    library = os.path.dirname(os.path.abspath(_original))
    dynamic = [path for path in sys.path if path.endswith("lib-dynload") and os.path.isdir(path)]
    return [library, *dynamic]


def _move_path(path: str, moved: Mapping[str, str]) -> str:
    for folder in sorted(moved, key=len, reverse=True):
        if path.startswith(folder + "/"):
            return moved[folder] + path[len(folder) :]
    return path


def open_to_all(packages: tuple[str, ...] = ()) -> bool:
    """Return whether every user can read the standard library and ``packages`` at their places."""
    return all(map(_open_to_all, [*_library_folders(), *packages]))


def _open_to_all(path: str) -> bool:
    if os.stat(path).st_mode & 0o5 != 0o5:
        return False
    while path != "/":
        path = os.path.dirname(path)
        if not os.stat(path).st_mode & 0o1:
            return False
    return True
