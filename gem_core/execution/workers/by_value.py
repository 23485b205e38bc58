"""What a worker cannot import travels by value: code of the script, lambdas and local classes.

Only this process's own objects are packed so. Recipes, clients and data name code as text, which is
looked up in modules and under the rules of `gem_core.env.registration.references`.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from gem_core.env.spec import EnvSpec
from gem_core.errors import GemError, text_of

SCRIPT = "__main__"


def pack_by_value(value: Any) -> bytes:
    """Return a pickle that a worker can read; what it can import is in it by name only.

    Raises:
        Exception: there is none, as for a lock or an open file.
    """
    import cloudpickle  # takes 30 ms, which a run without workers need not wait

    packed: bytes = cloudpickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    return packed


def pack_definition(spec: EnvSpec) -> bytes:
    """Return the environment's class, with what it uses, for `define`; empty if it has a module.

    Raises:
        GemError: it uses what cannot be sent.
    """
    module, _, name = spec.entry_point.partition(":")
    if module != SCRIPT:
        return b""
    try:
        return pack_by_value((name, spec.load()))
    except Exception as error:
        raise GemError(
            f"{spec.id}: {name} of the script cannot be sent to worker processes "
            f"({text_of(error)}): put it in a module of its own."
        ) from None


@cache
def define(definition: bytes) -> None:
    """Define in this process's ``__main__`` what the script of the parent defines there.

    Its names are then the same in both processes, so that what the environment returns can be read
    by the parent. It is done once, so that all environments share the variables of the script.
    """
    if not definition:
        return
    name, found = pickle.loads(definition)
    script = vars(sys.modules[SCRIPT])
    script.update({key: value for key, value in _names(found).items() if key[:2] != "__"})
    script[name] = found


def _names(found: Callable[..., Any]) -> dict[str, Any]:
    """Return the variables of the script that a class or a function uses."""
    classes = found.__mro__ if isinstance(found, type) else ()
    own = [vars(one) for one in classes if one.__module__ == SCRIPT]
    members = [found, *(member for one in own for member in one.values())]
    used = [getattr(member, "__globals__", {}) for member in members]
    return {key: value for names in used for key, value in names.items()}
