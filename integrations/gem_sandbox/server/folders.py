"""The folder of a program: how much it holds, and how to empty it again.

A program chooses the names, the depth and the kinds of the files in its folder, so nothing here
follows a symbolic link, recurses, or builds a path longer than the folder is deep.
"""

from __future__ import annotations

import errno
import itertools
import os

MOST_FILES = 2000
"""Files of a program; more count as an exceeded disk limit, and bound the time of a look."""
_LONGEST = 2000  # characters of a path: far below PATH_MAX
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def usage(folder: str, seen: set[int] | None = None) -> int | None:
    """Return the bytes on disk below a folder; ``None``: more files or deeper than is allowed.

    Args:
        folder: the folder.
        seen: gets the inodes that were counted.
    """
    seen = set() if seen is None else seen
    total = 0
    files = 0
    todo = [folder]
    while todo:
        try:
            with os.scandir(todo.pop()) as scanned:
                entries = list(itertools.islice(scanned, MOST_FILES + 1))
        except OSError:  # the program removed it meanwhile
            continue
        for entry in entries:
            files += 1
            if files > MOST_FILES or len(entry.path) > len(folder) + _LONGEST:
                return None
            try:
                about = entry.stat(follow_symlinks=False)
                if about.st_ino not in seen:  # else another name of one that was counted
                    seen.add(about.st_ino)
                    total += 512 * about.st_blocks
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
            except OSError:
                continue
    return total


def empty(folder: str) -> None:
    """Remove everything in a folder that nobody uses any more, but not the folder."""
    if not os.listdir(folder):
        return
    root = os.open(folder, _FOLDER)
    try:
        while folders := _remove_files(root):
            for name in folders:
                _flatten(root, name)
    finally:
        os.close(root)


def _remove_files(directory: int) -> list[str]:
    """Remove what is not a folder; return the names of the folders."""
    folders = []
    with os.scandir(directory) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                os.unlink(entry.name, dir_fd=directory)
    return folders


def _flatten(root: int, name: str) -> None:
    """Remove a folder in ``root`` and move its own folders up into ``root``.

    The depth never grows, however deep the folders are nested.
    """
    try:
        os.rmdir(name, dir_fd=root)
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    _open_up(name, root)
    inner = os.open(name, _FOLDER, dir_fd=root)
    try:
        for child in _remove_files(inner):
            _open_up(child, inner)  # to move a folder, one must be able to write to it
            new = f".moved-{os.urandom(8).hex()}"  # no name that a program could have taken
            os.rename(child, new, src_dir_fd=inner, dst_dir_fd=root)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=root)


def _open_up(name: str, directory: int) -> None:
    """Make a folder of our own readable; the superuser needs no rights."""
    if os.geteuid() != 0:
        os.chmod(name, 0o700, dir_fd=directory)
