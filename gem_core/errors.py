"""The exceptions of gem-core. Every message tells the user what to do next."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import CodeType

_BOUND = re.compile(r"python_version\s*(<=|>=|<|>)\s*[\"'](\d+)\.(\d+)[\"']")
_LONGEST_TEXT = 4000
"""Characters of an exception's message that are kept."""


class GemError(Exception):
    """Base class of every error that gem-core raises on purpose.

    Attributes:
        exit_code: that of a command which ends with it.
    """

    exit_code = 2


class UnknownNameError(GemError, LookupError):
    """A name (environment, estimator, trainer, template, ...) that is not registered."""


class RegistrationError(GemError, ValueError):
    """A name that cannot be registered: it is malformed, or another object has it."""


class ActionTypeError(GemError, TypeError):
    """An action that is not a ``str``."""


class EpisodeStateError(GemError, RuntimeError):
    """A call in the wrong state: ``step`` before ``reset`` or after the end."""


class StateError(GemError, ValueError):
    """A state that is not one of this environment; the environment is as it was before."""


class EnvResultError(GemError, TypeError):
    """What an environment returned is not what `gem_core.env.interface.Env` promises."""


class KindError(GemError, TypeError):
    """An argument of another kind than its function or class takes."""


class AdvantageError(GemError, ValueError):
    """Turn arrays, options or an estimator that cannot give one finite advantage per turn."""


class RecipeError(GemError, ValueError):
    """A recipe that cannot be read, or that asks for something that a trainer cannot do."""


class MissingDependencyError(GemError, ImportError):
    """A required package or Python version is missing; the message tells how to install it."""


class DataError(GemError, LookupError):
    """A data set that cannot be read, or that is not the requested one."""


class RunError(GemError, RuntimeError):
    """A run directory that cannot be created, resumed or read."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``" Did you mean 'x', 'y'?"`` for the close matches of ``name``, or ``""``.

    >>> did_you_mean("rebm", ["rebn", "grpo"])
    " Did you mean 'rebn'?"
    """
    from difflib import get_close_matches  # only a misspelt name needs it

    names = list(known)
    lower = {n.lower(): n for n in names}
    matches = get_close_matches(name.lower(), list(lower), n=3, cutoff=0.6)
    if not matches:
        return ""
    return " Did you mean " + ", ".join(repr(lower[m]) for m in matches) + "?"


def unknown(kind: str, name: str, known: Iterable[str], listing: str = "") -> UnknownNameError:
    """Build the error for an unknown ``name``; ``listing`` tells how to list the ``kind``."""
    hint = did_you_mean(name, known)
    return UnknownNameError(f"Unknown {kind} {name!r}.{hint}{' ' + listing if listing else ''}")


def require_kind(name: str, value: object, kind: type | tuple[type, ...], hint: str = "") -> None:
    """Check an argument of a public class or function where it is given.

    Args:
        name: the function and the argument, for the message.
        value: what was given.
        kind: what it must be an instance of; ``None`` is allowed by ``type(None)`` among them.
        hint: how to make one.

    Raises:
        KindError: it is not.
    """
    if not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        wanted = " or ".join("None" if k is type(None) else k.__name__ for k in kinds)
        raise KindError(f"{name} is a {wanted}, not a {type(value).__name__}.{hint and ' ' + hint}")


def require_methods(name: str, value: object, methods: Iterable[str], hint: str) -> None:
    """Check an argument that may be of any class with these attributes; see `require_kind`.

    Raises:
        KindError: an attribute is missing, or a class was given where its instance is needed.
    """
    missing = [method for method in methods if not hasattr(value, method)]
    if isinstance(value, type):
        raise KindError(f"{name} is an object, not the class {value.__name__}. {hint}")
    if missing:
        kind = type(value).__name__
        raise KindError(f"{name} needs {', '.join(missing)}, which a {kind} has not. {hint}")


def is_interruption(error: BaseException) -> bool:
    """Return whether an exception asks this program to stop, so that it must not be recorded.

    These are ``KeyboardInterrupt``, the cancellation of a task, and what a signal handler of this
    process raised. Everything else that comes out of an environment or a tool is its own failure:
    also ``SystemExit``, which foreign code raises where it should raise an error.
    """
    if isinstance(error, Exception):
        return False
    asyncio = sys.modules.get("asyncio")  # without it there are no tasks
    if isinstance(error, KeyboardInterrupt):
        return True
    if asyncio is not None and isinstance(error, asyncio.CancelledError):
        return True
    handlers = set(_signal_handlers())
    place = error.__traceback__
    while place is not None:
        if place.tb_frame.f_code in handlers:
            return True
        place = place.tb_next
    return False


def _signal_handlers() -> Iterator[CodeType]:
    """Yield the code of the Python functions that handle signals of this process."""
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        code = getattr(getattr(handler, "func", handler), "__code__", None)
        if code is not None:
            yield code


def text_of(error: BaseException) -> str:
    """Return the message of an exception as text that any file can hold; never raises for it.

    Foreign exceptions may raise in ``__str__``, have lone surrogates (names of files) or megabytes.
    """
    try:
        text = str(error)
    except BaseException as second:
        if is_interruption(second):
            raise
        return f"(its message cannot be shown: {type(second).__name__})"
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]} ..."


def error_line(error: BaseException) -> str:
    """Return the class and the message of an exception, see `text_of`.

    >>> error_line(SystemExit(3))
    'SystemExit: 3'
    """
    return f"{type(error).__name__}: {text_of(error)}"


def place_of(error: BaseException) -> str:
    """Return where an exception was raised, as the end of a message: `` (my_env.py:12)``.

    ``""`` for those of gem-core, whose message says what to do, and where it is not known.
    """
    place = error.__traceback__
    if isinstance(error, GemError) or place is None:
        return ""
    while place.tb_next is not None:
        place = place.tb_next
    return f" ({os.path.basename(place.tb_frame.f_code.co_filename)}:{place.tb_lineno})"


@contextmanager
def no_exit(what: str) -> Iterator[None]:
    """Inside the block foreign code cannot end the program: ``sys.exit`` is an error like others.

    Args:
        what: what the block does, for the message.

    Raises:
        GemError: the block raised what is neither an ``Exception`` nor an interruption.
    """
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        if is_interruption(error):
            raise
        raise GemError(f"{what}: {error_line(error)}{place_of(error)}") from error


def python_needed(
    extra: str,
    python: tuple[int, int] | None = None,
    declared: Iterable[str] | None = None,
) -> str | None:
    """Return the Python that an extra of gem-core needs, ``None`` if it installs something here.

    pip says nothing where the markers of an extra exclude all that is in it.

    Args:
        extra: its name.
        python: the version; ``None`` = of this interpreter.
        declared: requirements with their markers; ``None`` = those of the installed gem-core.

    >>> python_needed("new", (3, 10), ["trl; (python_version >= '3.11') and extra == 'new'"])
    '>=3.11'
    """
    if declared is None:
        from importlib.metadata import requires

        declared = requires("gem-core") or []
    here = python or sys.version_info[:2]
    mine = re.compile(rf"extra == [\"']{re.escape(extra)}[\"']")
    bounds = [_BOUND.findall(text) for text in declared if mine.search(text)]
    if not bounds or not all(any(not _holds(b, here) for b in one) for one in bounds):
        return None
    return ",".join(
        dict.fromkeys(f"{op}{major}.{minor}" for one in bounds for op, major, minor in one)
    )


def _holds(bound: tuple[str, str, str], python: tuple[int, ...]) -> bool:
    """Return whether a version of Python is within a bound of a marker."""
    operator, major, minor = bound
    limit = (int(major), int(minor))
    return {
        "<": python < limit,
        "<=": python <= limit,
        ">": python > limit,
        ">=": python >= limit,
    }[operator]


def how_to_install(extra: str) -> str:
    """Return the end of a message about a package that is missing: the line, or what it needs."""
    needed = python_needed(extra)
    line = f"pip install 'gem-core[{extra}]'"
    if needed is None:
        return line
    here = ".".join(map(str, sys.version_info[:2]))
    return f"it needs Python {needed}, and this is {here}: make an environment with it, then {line}"
