"""The exceptions of gem-core. Every message tells the user what to do next."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


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


class EnvResultError(GemError, TypeError):
    """What an environment returned is not what `gem_core.core.Env` promises."""


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
