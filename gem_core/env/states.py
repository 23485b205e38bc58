"""What a state may look like: bounded JSON data of the types that an environment declares."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from math import isfinite
from random import Random
from types import NoneType, UnionType
from typing import TYPE_CHECKING

from gem_core.errors import StateError, did_you_mean

if TYPE_CHECKING:
    from typing import Any

MAX_DEPTH = 64
"""Levels of lists and objects in a state."""
MAX_BITS = 512
"""Bits of a whole number in a state; a seed may have more than 64."""
_TOP_BIT = 1 << 31


def check_data(value: Any, depth: int = 0) -> None:
    """Check that a value is JSON data of bounded depth, with finite and bounded numbers.

    Raises:
        StateError: it is not.
    """
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return
    if kind is int:
        if value.bit_length() > MAX_BITS:
            raise StateError(f"A state has a whole number of more than {MAX_BITS} bits.")
    elif kind is float:
        if not isfinite(value):
            raise StateError(f"A state has a number that is not finite: {value}.")
    elif depth >= MAX_DEPTH:
        raise StateError(f"A state has at most {MAX_DEPTH} levels of lists and objects.")
    elif isinstance(value, list | tuple):
        for item in value:
            check_data(item, depth + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise StateError(f"A state has a key that is not a text: {key!r:.60}.")
            check_data(item, depth + 1)
    else:
        raise StateError(f"A state is JSON data, without {kind.__name__}.")


def read_generator(stored: Any) -> Random:
    """Return the generator that was stored as ``[version, numbers, next Gaussian]``.

    Raises:
        StateError: it is not the state of one, or of one that always draws zero.
    """
    try:
        version, internal, gauss = stored
        rng = Random(0)
        rng.setstate((version, tuple(internal), gauss))
    except (TypeError, ValueError, OverflowError):
        raise StateError("The generator of a state is not one of random.Random.") from None
    if not (gauss is None or (type(gauss) is float and isfinite(gauss))):
        raise StateError("The generator of a state has a next Gaussian that is not a number.")
    words = rng.getstate()[1]
    if not (words[0] & _TOP_BIT or any(words[1:-1])):
        raise StateError("The generator of a state only draws zeros.")
    return rng


def check_fields(owner: type, names: tuple[str, ...], fields: Any, *, started: bool) -> None:
    """Check the fields of a state against the annotations of the environment's class.

    Args:
        owner: the class.
        names: the fields that a state may have; those that are annotated have to be there once an
            episode was started.
        fields: those of the state.
        started: whether an episode was started.

    Raises:
        StateError: a field is missing, unknown, or of another type.
    """
    if not isinstance(fields, dict):
        raise StateError("The fields of a state are an object.")
    for name in fields:
        if name not in names:
            hint = did_you_mean(str(name), names)
            raise StateError(f"{owner.__name__} has no field {name!r:.60}.{hint}")
    hints = _hints(owner, names)
    for name, hint in hints.items():
        if name not in fields:
            if started:
                raise StateError(f"The state of {owner.__name__} lacks its field {name!r}.")
        elif not _matches(fields[name], hint):
            shown = hint if isinstance(hint, UnionType) else getattr(hint, "__name__", hint)
            raise StateError(
                f"The field {name!r} of {owner.__name__} is not of the type {shown}: "
                f"{fields[name]!r:.60}"
            )


@cache
def _hints(owner: type, names: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the annotations of the fields that can be evaluated."""
    import inspect

    found: dict[str, Any] = {}
    for cls in reversed(owner.__mro__):
        scope = {"Any": object, **vars(sys.modules.get(cls.__module__, sys))}
        for name, hint in inspect.get_annotations(cls).items():
            if name in names:
                found[name] = _evaluated(hint, scope)
    return {name: hint for name, hint in found.items() if hint is not None}


def _evaluated(hint: Any, scope: Mapping[str, Any]) -> Any:
    """Return a type from its text in the source of a class; ``None`` where it cannot be had."""
    if not isinstance(hint, str):
        return hint
    try:
        return eval(hint, dict(scope))  # of a class in this process, never of a state
    except (NameError, TypeError, AttributeError):  # a name for type checkers only
        return None


def _matches(value: Any, hint: Any) -> bool:
    """Return whether JSON data are of a type; a type that JSON does not know matches anything."""
    if hint is int or hint is bool or hint is str:
        return type(value) is hint
    if hint is float:
        return type(value) in (int, float)
    if hint is None or hint is NoneType:
        return value is None
    arguments = getattr(hint, "__args__", ())
    if isinstance(hint, UnionType):
        return any(_matches(value, option) for option in arguments)
    origin = getattr(hint, "__origin__", hint)
    if origin is dict:
        inner = arguments[1] if arguments else object
        return isinstance(value, dict) and all(_matches(v, inner) for v in value.values())
    if origin in (list, tuple):
        return isinstance(value, list | tuple) and _items_match(value, origin, arguments)
    return True


def _items_match(value: Any, origin: Any, hints: tuple[Any, ...]) -> bool:
    if not hints:
        return True
    if origin is list or hints[-1] is ...:
        return all(_matches(item, hints[0]) for item in value)
    return len(value) == len(hints) and all(map(_matches, value, hints))
