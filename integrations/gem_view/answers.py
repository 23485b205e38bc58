"""Answers as JSON, whatever the files of a run had in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

_DEPTH = 100
"""Levels of lists and objects that are shown."""
_DEEPER = "(nested too deeply to be shown)"


def encode(answer: Any) -> bytes:
    """Return ``answer`` as JSON: NaN is null, half of a surrogate pair is replaced."""
    try:
        return msgspec.json.encode(answer)
    except (UnicodeEncodeError, RecursionError):
        return msgspec.json.encode(_plain(answer, 0))


def _plain(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, (Mapping, list, tuple)) and depth > _DEPTH:
        return _DEEPER
    if isinstance(value, Mapping):
        return {_plain(key, depth): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, depth + 1) for item in value]
    return value
