"""An id that is itself the class of an environment, ``module:Class``: one that nobody registered.

It serves whoever writes an environment and tries it. An id that is registered comes first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from gem_core.env.interface import Env
from gem_core.env.registration.references import resolve_class
from gem_core.env.spec import EnvSpec
from gem_core.errors import GemError, RegistrationError, error_line, is_interruption, place_of

_CLASS = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_OURS = "gem_core"
"""The environments of gem-core have ids of their own."""


def class_spec(id: str) -> EnvSpec | None:
    """Return the spec of an id ``module:Class``; ``None`` if there is no such module.

    Raises:
        TrustError: it came as data, and is no class that an installed plugin defines, see
            `gem_core.env.registration.references`.
        CodeReferenceError: the module has no such class, or it is no `Env`.
        RegistrationError: the module raises an error when it is imported.
    """
    package = id.partition(":")[0].partition(".")[0]
    if not _CLASS.fullmatch(id) or package == _OURS or not _is_there(package):
        return None
    with importing(id):
        resolve_class(id, Env, "environment")
    return EnvSpec(id, id)


def missing_module(id: str, known: Iterable[str]) -> str:
    """Return what to do where an id may name a class of a module that is not found, else ``""``."""
    module = id.partition(":")[0].partition(".")[0]
    namespaces = {one.partition(":")[0] for one in known}
    if not _CLASS.fullmatch(id) or module in namespaces or _is_there(module):
        return ""
    return f"If it is a class of yours, set PYTHONPATH to the folder of its module {module!r}. "


@contextmanager
def importing(id: str) -> Iterator[None]:
    """Inside the block, what the module of an id raises is a RegistrationError of one line."""
    try:
        yield
    except GemError:
        raise
    except BaseException as error:  # a module's SystemExit would end the caller
        if is_interruption(error):
            raise
        raise RegistrationError(
            f"environment = {id!r}: its module cannot be imported: {error_line(error)}"
            f"{place_of(error)}"
        ) from error


def _is_there(package: str) -> bool:
    """Return whether a package or module of the first level can be found; nothing is imported."""
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):
        return False
