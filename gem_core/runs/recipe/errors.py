"""Messages of msgspec about a recipe, rewritten so that they name the dotted key."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from msgspec import Struct
from msgspec.structs import fields

from gem_core.errors import did_you_mean
from gem_core.runs.recipe.files import LISTS
from gem_core.runs.recipe.recipe import EnvConfig, Recipe, recipe_keys


def explain(message: str, data: Mapping[str, Any]) -> str:
    """Return a message of msgspec with the dotted key of ``data``, and what may have been meant."""
    place = re.search(r" - at `\$\.?(.*?)`$", message)
    table = re.sub(r"\[(\d+)\]", r".\1", place.group(1)) if place else ""
    unknown_field = re.search(r"unknown field `(.*?)`", message)
    if unknown_field:
        return _unknown_key(table, unknown_field.group(1))
    text = _in_words(message[: place.start()] if place else message) + _choices(table, message)
    if table in LISTS and isinstance(_value(data, table), Mapping):
        text += f"; it is a list of tables: write {table}.0.max_turns=3 for the first of them"
    end = "" if text.endswith("?") else "."
    return f"{_named_item(table, data) or 'recipe'}: {text}{end}"


def _unknown_key(table: str, name: str) -> str:
    key = f"{table}.{name}" if table else name
    known: Iterable[str] = recipe_keys()
    item = re.match(r"(eval\.)?env\.\d+", table)
    if item:
        known = recipe_keys(EnvConfig, f"{item[0]}.")
    same_table = [name for name in known if name.rpartition(".")[0] == table]
    tables = sorted({name.split(".")[0] for name in recipe_keys()})
    near = did_you_mean(key, same_table) or did_you_mean(key, [*known, *tables])
    return f"Unknown recipe key {key!r}.{near or ' See docs/recipes.md for all keys.'}"


def _choices(key: str, message: str) -> str:
    """Return the values that a key may have, if another one is what is wrong."""
    wrong = re.search(r"Invalid enum value '(.*?)'", message)
    known = _literals(key) if wrong else []
    if wrong is None or not known:
        return ""
    hint = did_you_mean(wrong[1], known)
    return f"; it is {_listed(known)}{'.' if hint else ''}{hint}"


def _listed(values: Sequence[str]) -> str:
    quoted = [repr(value) for value in values]
    return " or ".join([", ".join(quoted[:-1]), quoted[-1]]) if len(quoted) > 1 else quoted[0]


def _literals(key: str) -> list[str]:
    """Return the values of a key with a list of them; none for any other."""
    words = re.sub(r"^(eval\.)?env\.\d+\.", "", key).split(".")
    table: Any = Recipe if ".".join(words) == key else EnvConfig
    for word in words:
        if isinstance(table, type) and issubclass(table, Struct):
            table = next((f.type for f in fields(table) if f.name == word), None)
    return [value for value in _leaves(table) if isinstance(value, str)]


def _leaves(kind: Any) -> Iterator[Any]:
    """Yield the values of the literal types in an annotation."""
    if get_origin(kind) is Literal:
        yield from get_args(kind)
    else:
        for part in get_args(kind):
            yield from _leaves(part)


def _value(data: Mapping[str, Any], key: str) -> Any:
    """Return the value of a dotted key in nested tables."""
    value: Any = data
    for part in key.split("."):
        value = value[part]
    return value


def _named_item(table: str, data: Mapping[str, Any]) -> str:
    """Return the key of a wrong value of a free table, which msgspec does not name."""
    name, dots, _ = table.partition("[...]")
    if not dots:
        return table
    kind: type[Any] = Mapping if name == "trainer" else str
    wrong = [key for key, value in _value(data, name).items() if not isinstance(value, kind)]
    return f"{name}.{wrong[0]}"


def _in_words(text: str) -> str:
    """Return what msgspec expected in words, if it is a range; any other text unchanged."""
    if text == "Expected `str` of length >= 1":
        return "must not be empty"
    words = {">=": "at least", ">": "greater than", "<=": "at most", "<": "less than"}
    bound = re.fullmatch(r"Expected `(?:int|float)` ([<>]=?) (\S+)", text)
    if not bound:
        return text
    if abs(float(bound.group(2))) == sys.float_info.max:
        return "must be finite"
    return f"must be {words[bound.group(1)]} {float(bound.group(2)):g}"
