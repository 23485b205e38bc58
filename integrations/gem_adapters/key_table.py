"""The key table of an adapter: what becomes of each recipe key, and what decides each native key.

The ``key_table`` module of every adapter declares its table as rows, made by the functions below.
What is set, what is refused and the pages of ``docs/native_keys`` follow from it. Native keys are
given as words of a text, dotted; a prefix of Hydra's is part of the name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

from gem_adapters.native_keys import bare, core_keys
from gem_core.runs.recipe.files import flatten
from gem_core.runs.recipe.recipe import Recipe, get_key, recipe_keys

Compute = Callable[[Recipe], Any]
Kind = Literal["copied", "computed", "fixed", "default", "unset", "applied", "refused"]
LEFT_OUT: Final = object()
"""A computed value that is not set, so that the trainer's own default stays."""


@dataclass(frozen=True)
class KeyRow:
    """What becomes of recipe keys or native keys.

    Attributes:
        kind: name of the function below that made it.
        keys: the recipe keys, dotted.
        native: the native keys, dotted.
        value: of the native keys; a function gets the recipe.
        text: the rule of a computed value, or why.
    """

    kind: Kind
    keys: tuple[str, ...]
    native: tuple[str, ...]
    value: Any
    text: str

    def value_for(self, recipe: Recipe) -> Any:
        """Return the value of the native keys, or `LEFT_OUT`."""
        return self.value(recipe) if callable(self.value) else self.value

    @property
    def owner(self) -> str:
        """What decides the native keys, as an error says it."""
        if self.kind != "fixed" and self.keys:
            return f"set {' and '.join(self.keys)} instead"
        return self.text or f"the adapter needs {self.value!r} there"


def copied(key: str, native: str) -> KeyRow:
    """Native keys that get the value of a recipe key; a table's entries get keys of their own."""
    return KeyRow("copied", (key,), _words(native), lambda recipe: get_key(recipe, key), "")


def computed(keys: str, native: str, value: Compute, rule: str = "") -> KeyRow:
    """Native keys whose value follows from recipe keys.

    Args:
        keys: the recipe keys to set instead of them, separated by spaces.
        native: the native keys.
        value: gives the value, or `LEFT_OUT`.
        rule: in words; by default the docstring of ``value``.

    Raises:
        ValueError: there is neither.
    """
    return KeyRow("computed", _words(keys), _words(native), value, rule or _rule(value))


def fixed(native: str, value: Any, why: str = "") -> KeyRow:
    """Native keys that must have one value with this adapter."""
    return KeyRow("fixed", (), _words(native), value, why)


def default(native: str, value: Any, why: str = "", keys: str = "") -> KeyRow:
    """Native keys that the adapter sets, and that ``[trainer.<name>]`` may set otherwise.

    Args:
        native: the native keys.
        value: the value, or a function that gives it, or `LEFT_OUT`.
        why: the reason or rule; by default the docstring of ``value``.
        keys: recipe keys that the value depends on.
    """
    return KeyRow("default", _words(keys), _words(native), value, why or _rule(value))


def unset(native: str, why: str = "", keys: str = "") -> KeyRow:
    """Native keys that stay as they are in the trainer, and that no recipe may set.

    Args:
        native: the native keys.
        why: the reason.
        keys: or the recipe keys that have their meaning.
    """
    return KeyRow("unset", _words(keys), _words(native), LEFT_OUT, why)


def applied(keys: str, how: str) -> KeyRow:
    """Recipe keys that the adapter itself carries out."""
    return KeyRow("applied", _words(keys), (), LEFT_OUT, how)


def refused(key: str, why: str) -> KeyRow:
    """A recipe key that must keep its default; the text says what to do instead."""
    return KeyRow("refused", (key,), (), LEFT_OUT, why)


def only_if(condition: Callable[[Recipe], bool], value: Any) -> Compute:
    """Return a function that gives ``value`` where the condition holds, else `LEFT_OUT`."""
    return lambda recipe: value if condition(recipe) else LEFT_OUT


class KeyTable:
    """The rows of one adapter.

    Raises:
        ValueError: a recipe key does not exist, a native key stands in two rows, or a recipe key
            is refused and used.
    """

    def __init__(self, *rows: KeyRow) -> None:
        self.rows = rows
        unknown = {key for row in rows for key in row.keys} - {*recipe_keys()}
        names = [bare(name) for row in rows for name in row.native]
        wrong = {
            "no keys of a recipe": unknown,
            "native keys that stand there twice": {n for n in names if names.count(n) > 1},
            "native keys without a reason": {
                name
                for row in self.of("unset")
                if not (row.text or row.keys)
                for name in row.native
            },
            "keys that are also refused": self.refused.keys() & (self.translated | self.applied),
        }
        for what, found in wrong.items():
            if found:
                raise ValueError(f"{what}: {sorted(found)}")

    def of(self, *kinds: Kind) -> Iterator[KeyRow]:
        """Yield the rows of these kinds."""
        return (row for row in self.rows if row.kind in kinds)

    @cached_property
    def applied(self) -> frozenset[str]:
        """The recipe keys that the adapter itself carries out."""
        return frozenset(key for row in self.of("applied") for key in row.keys)

    @cached_property
    def refused(self) -> dict[str, str]:
        """Recipe key -> why it cannot be honoured, and what to do instead."""
        return {row.keys[0]: row.text for row in self.of("refused")}

    @cached_property
    def translated(self) -> frozenset[str]:
        """The recipe keys that become native ones, without those of the core and `applied`."""
        rows = self.of("copied", "computed", "default")
        return frozenset(key for row in rows for key in row.keys) - core_keys() - self.applied

    @cached_property
    def owned(self) -> dict[str, str]:
        """Native key, see `bare` -> what decides it; ``[trainer.<name>]`` may not set it."""
        rows = self.of("copied", "computed", "fixed", "unset")
        return {bare(name): row.owner for row in rows for name in row.native}

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """Native key -> the adapter's default, or a function that gives it."""
        return {name: row.value for row in self.of("default") for name in row.native}

    @cached_property
    def fixed(self) -> dict[str, Any]:
        """Native key -> the value that the adapter needs."""
        return {name: row.value for row in self.of("fixed") for name in row.native}

    def settings(self, recipe: Recipe) -> dict[str, Any]:
        """Return dotted native key -> value: all that is set for ``recipe``."""
        found: dict[str, Any] = {}
        for row in self.of("default", "copied", "computed", "fixed"):
            value = row.value_for(recipe)
            if value is not LEFT_OUT:
                found |= dict.fromkeys(row.native, value)
        return flatten(found)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _rule(value: Any) -> str:
    """Return the first paragraph of a function's docstring, without its verb; "" for a value."""
    if not callable(value):
        return ""
    text = inspect.getdoc(value)
    if not text:
        raise ValueError("A function without a docstring needs a rule in words.")
    return " ".join(text.split("\n\n")[0].removeprefix("Return ").rstrip(".").split())
