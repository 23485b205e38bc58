"""What a client of a server may set of an environment: declared, typed and bounded parameters.

A declaration is a dict, name -> kind; it belongs to the registration of an id
(`gem_core.register(..., client_parameters={...})`). What is not declared cannot be set by a client.
No kind takes free text: a client never names code, a file, an address or the level of a sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from gem_core.errors import GemError, did_you_mean

_LONGEST_SHOWN = 60
_MOST_NAMES = 16
_NAME = re.compile(r"[a-z][a-z_]{0,39}")


class ParameterError(GemError, ValueError):
    """A client asked for a parameter, or a value, that it may not set."""


class Kind(Protocol):
    """Which values a parameter takes; its text says so."""

    def accepts(self, value: object) -> bool:
        """Return whether a client may set this value."""

    def schema(self) -> dict[str, Any]:
        """Return the same as a JSON schema."""


Declared = Mapping[str, Kind]
"""Parameters that a client may set, by name."""


class Whole(NamedTuple):
    """A whole number from ``low`` to ``high``, both included."""

    low: int
    high: int

    def accepts(self, value: object) -> bool:
        """See `Kind`."""
        return type(value) is int and self.low <= value <= self.high

    def schema(self) -> dict[str, Any]:
        """See `Kind`."""
        return {"type": "integer", "minimum": self.low, "maximum": self.high}

    def __str__(self) -> str:
        return f"a whole number from {self.low} to {self.high}"


class Number(NamedTuple):
    """A number from ``low`` to ``high``, both included."""

    low: float
    high: float

    def accepts(self, value: object) -> bool:
        """See `Kind`; NaN is in no range."""
        return type(value) in (int, float) and self.low <= value <= self.high  # type: ignore[operator]

    def schema(self) -> dict[str, Any]:
        """See `Kind`."""
        return {"type": "number", "minimum": self.low, "maximum": self.high}

    def __str__(self) -> str:
        return f"a number from {self.low:g} to {self.high:g}"


class Flag(NamedTuple):
    """True or false."""

    def accepts(self, value: object) -> bool:
        """See `Kind`."""
        return type(value) is bool

    def schema(self) -> dict[str, Any]:
        """See `Kind`."""
        return {"type": "boolean"}

    def __str__(self) -> str:
        return "true or false"


class Choice:
    """One of some names or numbers, of which all are given."""

    def __init__(self, *values: str | int) -> None:
        self.values = values

    def accepts(self, value: object) -> bool:
        """See `Kind`; True is not 1."""
        return any(type(value) is type(one) and value == one for one in self.values)

    def schema(self) -> dict[str, Any]:
        """See `Kind`."""
        return {"enum": list(self.values)}

    def __str__(self) -> str:
        return " or ".join(map(repr, self.values)) if self.values else "nothing"


class Sizes(NamedTuple):
    """A list of ``length`` whole numbers from ``low`` to ``high``."""

    length: int
    low: int
    high: int

    def accepts(self, value: object) -> bool:
        """See `Kind`."""
        one = Whole(self.low, self.high)
        return (
            isinstance(value, list) and len(value) == self.length and all(map(one.accepts, value))
        )

    def schema(self) -> dict[str, Any]:
        """See `Kind`."""
        items = Whole(self.low, self.high).schema()
        return {"type": "array", "items": items, "minItems": self.length, "maxItems": self.length}

    def __str__(self) -> str:
        return f"a list of {self.length} whole numbers from {self.low} to {self.high}"


class Rewards(NamedTuple):
    """Numbers by name, such as ``{"success": 1.0}``; the environment knows the names."""

    low: float = -1000.0
    high: float = 1000.0

    def accepts(self, value: object) -> bool:
        """See `Kind`."""
        one = Number(self.low, self.high)
        return (
            isinstance(value, dict)
            and len(value) <= _MOST_NAMES
            and all(isinstance(name, str) and _NAME.fullmatch(name) for name in value)
            and all(map(one.accepts, value.values()))
        )

    def schema(self) -> dict[str, Any]:
        """See `Kind`."""
        values = Number(self.low, self.high).schema()
        return {"type": "object", "additionalProperties": values, "maxProperties": _MOST_NAMES}

    def __str__(self) -> str:
        return f"numbers by name, each from {self.low:g} to {self.high:g}"


class Maybe(NamedTuple):
    """A value of another kind, or null."""

    kind: Kind

    def accepts(self, value: object) -> bool:
        """See `Kind`."""
        return value is None or self.kind.accepts(value)

    def schema(self) -> dict[str, Any]:
        """See `Kind`."""
        return {"anyOf": [self.kind.schema(), {"type": "null"}]}

    def __str__(self) -> str:
        return f"{self.kind}, or null"


def check_declared(
    id: str,
    declared: Declared,
    given: Mapping[str, Any],
    allowed: Iterable[Mapping[str, Any]] = (),
) -> None:
    """Check that a client may set these parameters.

    Args:
        id: of the environment.
        declared: what every client may set of it.
        given: what the client asks for.
        allowed: tables of parameters that the operator of the server allows besides; what is not
            declared must be in one of them, name by name with the same value.

    Raises:
        ParameterError: it may not; the message says what may be set.
    """
    free = {n: v for n, v in given.items() if not (n in declared and declared[n].accepts(v))}
    if not free or any(_lies_in(free, table) for table in allowed):
        return
    name, value = next(iter(free.items()))
    remedy = "The operator of the server can allow more: gem-core serve --recipe FILE."
    if name in declared:
        raise ParameterError(
            f"{id}: {name} must be {declared[name]}, not {_shown(value)}. {remedy}"
        )
    listing = ", ".join(declared) or "nothing"
    hint = did_you_mean(str(name)[:_LONGEST_SHOWN], declared)
    raise ParameterError(
        f"{id}: a client cannot set {_shown(name)}.{hint} It may set: {listing}. {remedy}"
    )


def parameters_schema(declared: Declared) -> dict[str, Any]:
    """Return the JSON schema of what a client may set."""
    properties = {name: kind.schema() for name, kind in declared.items()}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _lies_in(free: Mapping[str, Any], table: Mapping[str, Any]) -> bool:
    return all(name in table and _same(table[name], value) for name, value in free.items())


def _same(one: object, other: object) -> bool:
    """Whether two values are the same JSON; True is not 1."""
    return _text(one) == _text(other)


def _text(value: object) -> str:
    import json

    return json.dumps(value, sort_keys=True, default=repr)


def _shown(value: object) -> str:
    """Return a value of a client for a message: short, and on one line."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 200:
        return "a number of more than 60 digits"
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
