"""States that a client may send: a real one, changed in every place."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from random import Random
from typing import Any

VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    7,
    10**9,
    2**70,
    10**400,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x" * 3000,
    "../../x",
    "/etc/passwd",
    "a\0b",
    "\ud800",
    "ATTACH DATABASE 'x.db' AS y; CREATE TABLE y.z (a)",
    [],
    {},
    [[0, 0], [0]],
    [0] * 20_000,
    {"bytes": "zz"},
)
_FIRST_LEAVES = 4  # of a list
_MOST_PLACES = 60


def deep(levels: int = 300) -> Any:
    """Return lists in lists."""
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to every part of a state; of a long list, to its first and last ones."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        shown = range(len(value))
        if len(value) > 2 * _FIRST_LEAVES:
            shown = [*range(_FIRST_LEAVES), len(value) - 1]  # type: ignore[assignment]
        for index in shown:
            yield from places(value[index], (*path, index))


def changed(state: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a copy with another value in one place."""
    copied = copy.deepcopy(state)
    inner = copied
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return copied


def without(state: Any, path: tuple[Any, ...]) -> Any:
    """Return a copy that lacks one part."""
    copied = copy.deepcopy(state)
    inner = copied
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return copied


def hostile(state: dict[str, Any], rng: Random, most: int) -> Iterator[dict[str, Any]]:
    """Yield changed states: each place takes hostile values, is left out, or gets a neighbour.

    Args:
        state: a real one.
        rng: chooses values, and places where there are too many.
        most: how many states.
    """
    found = list(places(state))
    rng.shuffle(found)
    first = sorted(found[:_MOST_PLACES], key=len)  # keys of the state itself come first
    made = 0
    while made < most:
        for path in first:
            kind = rng.randrange(8)
            if kind == 0:
                yield without(state, path)
            elif kind == 1:
                yield (
                    changed(state, (*path[:-1], f"{path[-1]}x"), 1)
                    if isinstance(path[-1], str)
                    else changed(state, path, deep())
                )
            elif kind == 2:
                yield changed(state, path, _near(state, path, rng))
            else:
                yield changed(state, path, rng.choice(VALUES))
            made += 1
            if made >= most:
                return


def _near(state: Any, path: tuple[Any, ...], rng: Random) -> Any:
    """Return a value of the same type that is not the right one."""
    value = state
    for key in path:
        value = value[key]
    if type(value) is int:
        return value + rng.choice([-1, 1, 2, -100, 1000])
    if isinstance(value, str):
        return value[: len(value) // 2] + rng.choice(["", "?", "#", " ", "\n", value])
    if isinstance(value, list):
        return value[:-1] if rng.random() < 0.5 else [*value, *value]
    return deep()
