"""The recipe of a run as a TOML file, which `gem_core.runs.recipe.load.load_recipe` reads again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from gem_core.errors import RunError

_HEAD = "# The recipe of the run, every key with its value.\n"
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def recipe_text(data: Mapping[str, Any]) -> str:
    """Return a recipe as TOML.

    TOML has no ``None``: a key with it is left out. In a recipe that is its default.

    Args:
        data: the recipe as plain types.

    Raises:
        RunError: a text cannot be written as UTF-8, or a list has ``None`` in it.

    >>> print(recipe_text({"name": "a", "env": [{"id": "game:A-v0"}], "train": {"steps": 2}}))
    # The recipe of the run, every key with its value.
    name = "a"
    <BLANKLINE>
    [[env]]
    id = "game:A-v0"
    <BLANKLINE>
    [train]
    steps = 2
    <BLANKLINE>
    """
    return _HEAD + "".join(f"{line}\n" for line in _table(data, ""))


def _table(table: Mapping[str, Any], prefix: str) -> Iterator[str]:
    """Yield the lines of a table: its values first, as what follows a header belongs to that."""
    inner: list[tuple[str, Any]] = []
    for key, value in table.items():
        if isinstance(value, Mapping) or _is_list_of_tables(value):
            inner.append((f"{prefix}{_key(key)}", value))
        elif value is not None:
            yield f"{_key(key)} = {_value(value)}"
    for name, value in inner:
        header, tables = (f"[{name}]", [value]) if isinstance(value, Mapping) else (None, value)
        for one in tables:
            yield ""
            yield header or f"[[{name}]]"
            yield from _table(one, f"{name}.")


def _is_list_of_tables(value: Any) -> bool:
    """Return whether it is a list of tables only; others are written within their line."""
    return isinstance(value, list | tuple) and bool(value) and all(map(_is_table, value))


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping)


def _value(value: Any) -> str:
    """Return a value within a line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int | float):
        return repr(value)  # also inf, nan and 1e-06, which TOML writes so
    if isinstance(value, Mapping):
        pairs = ((key, item) for key, item in value.items() if item is not None)
        return "{" + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    raise RunError(f"The recipe has {value!r} in a list, which TOML cannot say.")


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _text(text: str) -> str:
    """Return a string of TOML: one of JSON, but for the one control character that JSON allows."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RunError(f"The recipe has a text that is not Unicode: {text!r}.") from None
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
