"""What the state of a shell may hold: files below its folder, no more than a shell keeps."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from typing import Any

from gem_core.errors import StateError

_KINDS = ("text", "base64", "folder", "link")
_TEXT = 1 << 16
"""Most characters of the variables, and of the working folder; see ``_shell_program.py``."""
_PATH = 4096
_NAME = 255


def check_shell(state: Any, most_files: int, most_bytes: int) -> None:
    """Check the state of a shell that may come from anywhere.

    The program in the sandbox writes the files where their paths say, and follows links on the way:
    a path may neither leave the folder nor go through anything but a folder.

    Raises:
        StateError: it is not the state of a shell.
    """
    if not isinstance(state, Mapping) or not isinstance(state.get("files"), dict):
        raise StateError("The state of a shell has files, cwd and variables.")
    for name in ("cwd", "variables"):
        if not _is_text(state.get(name)) or len(state[name]) > _TEXT:
            raise StateError(f"{name} of a shell is a text of at most {_TEXT} characters.")
    files = state["files"]
    if len(files) > most_files:
        raise StateError(f"A shell keeps at most {most_files} files and folders.")
    size = sum(_size(path, entry) for path, entry in files.items())
    if size > most_bytes:
        raise StateError(f"A shell keeps at most {most_bytes} bytes of files.")
    for path in files:
        _check_way(path, files)


def _size(path: Any, entry: Any) -> int:
    if not (isinstance(entry, list | tuple) and len(entry) == 3 and type(entry[2]) is bool):
        raise StateError(f"A file of a shell has a kind, data and a mark: {path!r:.60}.")
    kind, data, _ = entry
    if kind not in _KINDS or not _is_text(data) or (kind == "link" and not data):
        raise StateError(f"A file of a shell is one of {', '.join(_KINDS)}: {path!r:.60}.")
    if kind == "base64":
        try:
            base64.b64decode(data, validate=True)
        except binascii.Error:
            raise StateError(f"The data of {path!r:.60} are not base64.") from None
    return len(data) + len(path)


def _check_way(path: str, files: Mapping[str, Any]) -> None:
    """Check that a path stays below the folder, through folders only."""
    names = path.split("/")
    if not _is_name(path) or len(path) > _PATH or any(n in ("", ".", "..") for n in names):
        raise StateError(f"A path of a shell's file is relative, without '..': {path!r:.60}.")
    if any(len(os.fsencode(name)) > _NAME for name in names):
        raise StateError(f"A name of a shell's file is too long: {path!r:.60}.")
    for depth in range(1, len(names)):
        above = files.get("/".join(names[:depth]))
        if above is not None and above[0] != "folder":
            raise StateError(f"{path!r:.60} is below what is not a folder.")


def _is_text(value: Any, errors: str = "strict") -> bool:
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        value.encode("utf-8", errors)
    except UnicodeEncodeError:
        return False
    return True


def _is_name(value: str) -> bool:
    """Return whether a text can name a file; a name need not be UTF-8."""
    return _is_text(value, "surrogateescape")
