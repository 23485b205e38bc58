"""References to code, ``module:attribute``, that come as data: in a recipe, a run or a request.

Data never name code: inside `from_data`, only what an installed plugin defines is resolved, or what
gem-core defines itself, unless the user gave ``--trust`` to the command, which sets the variable
`TRUST_VARIABLE` for it and for the processes that it starts. A plugin is a package with an entry
point in a group ``gem_core.*``. A program that calls `gem_core.make` itself chooses its code: there
only the kind of what is named is checked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from inspect import isabstract, signature
from types import FunctionType
from typing import Any, TypeVar

from gem_core.errors import GemError

T = TypeVar("T")
TRUST_VARIABLE = "GEM_CORE_TRUST"
"""``1``: data that this process and its children read may name code. Never set from data."""
_PLACE = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)")
_OURS = "gem_core"
_DISTRIBUTION = "gem-core"
_from_data: ContextVar[bool] = ContextVar("from_data", default=False)


class TrustError(GemError, ValueError):
    """Data that name code, or lower a protection, and that the user did not say to trust."""


class CodeReferenceError(GemError, LookupError):
    """A reference that names nothing, or something of another kind."""


def trusted() -> bool:
    """Return whether the user trusts the data that this process reads."""
    return os.environ.get(TRUST_VARIABLE) == "1"


@contextmanager
def trust(given: bool) -> Iterator[None]:
    """Inside the block this process and those that it starts trust their data, if ``given``."""
    before = os.environ.get(TRUST_VARIABLE)
    if given:
        os.environ[TRUST_VARIABLE] = "1"
    try:
        yield
    finally:
        if given and before is None:
            del os.environ[TRUST_VARIABLE]


def passed_on() -> dict[str, str]:
    """Return the variables by which processes on other machines trust what this one trusts."""
    return {TRUST_VARIABLE: "1"} if trusted() else {}


@contextmanager
def from_data() -> Iterator[None]:
    """Inside the block, what names code came as data."""
    token = _from_data.set(True)
    try:
        yield
    finally:
        _from_data.reset(token)


def needs_trust(what: str) -> None:
    """Refuse something that data may not ask for.

    Args:
        what: what is asked for, as the beginning of a sentence.

    Raises:
        TrustError: it came as data, and the user did not say to trust them.
    """
    if _from_data.get():
        needs_trust_as_data(what)


def check_level(level: str | None) -> None:
    """Refuse a level of the sandbox that is named by data: it may be weaker than the default.

    Raises:
        TrustError: it came as data, is not the strongest, and the user gave no ``--trust``.
    """
    if level not in (None, "strict"):
        needs_trust(f"level = {level!r}")


def needs_trust_as_data(what: str) -> None:
    """As `needs_trust`, where it is known to come as data.

    Raises:
        TrustError: the user did not say to trust the data.
    """
    if not trusted():
        raise TrustError(
            f"{what}: a recipe, a run or a client cannot ask for that. If you know who wrote it, "
            "give --trust to the command (SECURITY.md says what that permits)."
        )


def resolve_class(path: str, base: Callable[..., T], what: str) -> Callable[..., T]:
    """Return the class ``module:Class``.

    Args:
        path: the reference.
        base: the class that it must be derived from.
        what: what names it, for messages: ``game``.

    Raises:
        TrustError: it came as data, and is no class that an installed plugin defines.
        CodeReferenceError: there is no such class, or it is of another kind.
    """
    assert isinstance(base, type)
    found = _resolve(path, what)
    if not (isinstance(found, type) and issubclass(found, base)) or isabstract(found):
        raise CodeReferenceError(f"{what} = {path!r} is not a class derived from {base.__name__}.")
    kind: Callable[..., Any] = found
    return kind


def resolve_function(path: str, arguments: int | None, what: str) -> Callable[..., Any]:
    """Return the function ``module:function``.

    Args:
        path: the reference.
        arguments: how many it must take by position; ``None``: the caller checks that.
        what: what names it, for messages: ``opponent``.

    Raises:
        TrustError: it came as data, and is no function that an installed plugin defines. Functions
            of gem-core have names of their own, and are not found by a reference.
        CodeReferenceError: there is no such function, or it takes other arguments.
    """
    check_reference(path, what)
    if _packages().get(_top(path)):
        needs_trust(f"{what} = {path!r} names a function of gem-core, not one of a plugin")
    found = _resolve(path, what)
    if not callable(found) or isinstance(found, type) or not _takes(found, arguments):
        raise CodeReferenceError(f"{what} = {path!r} is not a function of {arguments} arguments.")
    if not isinstance(found, FunctionType):
        needs_trust(f"{what} = {path!r} is not defined as a function")
    function: Callable[..., Any] = found
    return function


def check_reference(path: str, what: str) -> None:
    """Check a reference before anything is imported for it.

    Raises:
        TrustError: it came as data, and its module is not one of an installed plugin.
        CodeReferenceError: it is not written ``module:attribute``.
    """
    if not isinstance(path, str) or not _PLACE.fullmatch(path):
        raise CodeReferenceError(f"{what} = {path!r:.80}: write 'module:name'.")
    private = any(part.startswith("_") for part in re.split(r"[.:]", path))
    if private or _top(path) not in plugin_packages():
        needs_trust(f"{what} = {path!r} names code outside of the installed plugins")


def check_module(module: str, what: str) -> None:
    """Check the name of a module that a foreign package would import.

    Raises:
        TrustError: it came as data, and is not a module of an installed plugin.
    """
    if _packages().get(module.partition(".")[0]) is not False:
        needs_trust(f"{what} imports the module {module!r}, which is not in an installed plugin")


def plugin_packages() -> frozenset[str]:
    """Return gem-core and the packages that have an entry point in a group ``gem_core.*``."""
    return frozenset(_packages())


@cache
def _packages() -> dict[str, bool]:
    """Return package -> whether it is gem-core's own (an adapter is)."""
    from importlib.metadata import distributions

    found = {_OURS: True}
    for one in distributions():
        for point in one.entry_points:
            if point.group.startswith(f"{_OURS}."):
                package = point.module.partition(".")[0]
                found[package] = found.get(package, False) or one.name == _DISTRIBUTION
    return found


def _resolve(path: str, what: str) -> Any:
    check_reference(path, what)
    module, _, name = path.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise CodeReferenceError(f"{what} = {path!r}: {error}.") from None
    home = getattr(found, "__module__", None)
    if not isinstance(home, str) or home.partition(".")[0] != _top(path):
        needs_trust(f"{what} = {path!r} is not defined there, but in {home!r}")
    return found


def _top(path: str) -> str:
    return path.partition(":")[0].partition(".")[0]


def _takes(function: Callable[..., Any], arguments: int | None) -> bool:
    if arguments is None:
        return True
    try:
        signature(function).bind(*[None] * arguments)
    except (TypeError, ValueError):
        return False
    return True
