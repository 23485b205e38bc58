"""Open and read the files of a run, which may come from somebody else.

Only regular files are opened, no link is followed, nothing waits (as a named pipe would), and what
is read at once is bounded. Whatever is wrong with a file is one `RunError` that names it.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from gem_core.errors import RunError

OBJECT_BYTES = 16 << 20
"""Bytes of a file that is one JSON object (``run.json``), at most."""
LINE_BYTES = 8 << 20
"""Bytes of a line of a ``.jsonl`` file, at most; those of episodes have a limit of their own."""
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
T = TypeVar("T")


def open_file(path: str | Path, at_most: int | None = None) -> BinaryIO:
    """Open a regular file for reading.

    Args:
        path: the file.
        at_most: its size in bytes; ``None`` = any.

    Raises:
        FileNotFoundError: there is nothing of this name.
        RunError: it is a link, not a regular file, too large, or cannot be read.
    """
    try:
        descriptor = os.open(path, _FLAGS)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise RunError(f"{path} is a link, and links in a run are not followed.") from None
        raise RunError(f"{path} cannot be read: {error.strerror}.") from None
    _check_kind(descriptor, path, at_most)
    return os.fdopen(descriptor, "rb")


def _check_kind(descriptor: int, path: str | Path, at_most: int | None) -> None:
    """Close what is not a regular file, or too large a one, and raise."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise RunError(f"{path} is {kind}, not a regular file.")
    if at_most is not None and status.st_size > at_most:
        os.close(descriptor)
        raise RunError(f"{path} has {status.st_size:,} bytes; at most {at_most:,} are read.")


def open_to_append(path: str | Path) -> int:
    """Return a descriptor that appends to a regular file, which is made if there is none.

    A run that came from somebody else may have a link of this name; writing through it would
    change a file outside.

    Raises:
        RunError: it is a link or not a regular file, or cannot be written.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise RunError(f"{path} is a link, and links in a run are not followed.") from None
        raise RunError(f"{path} cannot be written: {error.strerror}.") from None
    _check_kind(descriptor, path, None)
    return descriptor


def append_line(path: Path, data: Any) -> None:
    """Append a line of JSON to a file, see `open_to_append`."""
    with os.fdopen(open_to_append(path), "a", encoding="utf-8") as file:
        file.write(json.dumps(data) + "\n")


def refuse_link(path: Path) -> Path:
    """Return ``path``, a file of a run that something else writes.

    Raises:
        RunError: it is a link, through which a file outside would be written.
    """
    if path.is_symlink():
        raise RunError(f"{path} is a link, and links in a run are not followed: delete it.")
    return path


def write_object(path: Path, data: Any) -> None:
    """Write a JSON object; a process that is killed leaves either the old file or the new one."""
    partial = path.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    partial.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(partial, path)


def read_object(path: Path, kind: type[Any] | None = None) -> dict[str, Any]:
    """Return the JSON object in a file.

    Args:
        path: the file.
        kind: a `msgspec.Struct`; the object must have its fields, and may have others.

    Raises:
        FileNotFoundError: there is no such file.
        RunError: it cannot be read, or is not such an object.
    """
    with open_file(path, OBJECT_BYTES) as file:
        text = file.read(OBJECT_BYTES + 1)
    data = _parse(text, str(path))
    if kind is not None:
        convert(data, kind, str(path))
    return data


def read_lines(path: Path, *kinds: Any, at_most: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a file with one per line; none where there is no file.

    A last line without its end, which a killed process left, is left out if it is not JSON.

    Args:
        path: the file.
        kinds: types that `msgspec` knows; every line must be of each. Of a `msgspec.Struct` it must
            have the fields, and may have others.
        at_most: size of the file in bytes; ``None`` = any.

    Raises:
        RunError: the file cannot be read, or a line is not such an object.
    """
    try:
        file = open_file(path, at_most)
    except FileNotFoundError:
        return
    with file:
        for number, line in enumerate(_lines(file, path), 1):
            where = f"{path}:{number}"
            try:
                row = _parse(line, where)
            except RunError:
                if not line.endswith(b"\n"):
                    return
                raise
            for kind in kinds:
                convert(row, kind, where)
            yield row


def _lines(file: BinaryIO, path: Path) -> Iterator[bytes]:
    number = 0
    while line := file.readline(LINE_BYTES + 1):
        number += 1
        if len(line) > LINE_BYTES:
            raise RunError(f"{path}:{number} is longer than {LINE_BYTES:,} bytes.")
        yield line


def _parse(text: bytes, where: str) -> dict[str, Any]:
    try:
        data = json.loads(text.decode("utf-8"))
    except RecursionError:
        raise RunError(f"{where} is nested too deeply.") from None
    except UnicodeDecodeError as error:
        raise RunError(f"{where} is not UTF-8 (byte {error.start}).") from None
    except json.JSONDecodeError as error:
        raise RunError(f"{where} is not JSON: {error}.") from None
    except ValueError:  # Python limits the digits of a number, as their time is quadratic
        raise RunError(f"{where} has a number with too many digits.") from None
    if not isinstance(data, dict):
        raise RunError(f"{where} is not a JSON object.")
    return data


def convert(data: Any, kind: type[T], where: str) -> T:
    """Return ``data`` as a ``kind``; see `msgspec.convert`.

    Raises:
        RunError: it is none; the message begins with ``where``.
    """
    try:
        return msgspec.convert(data, kind)
    except (msgspec.ValidationError, OverflowError, RecursionError) as error:
        raise RunError(f"{where} is damaged: {error}.") from None
