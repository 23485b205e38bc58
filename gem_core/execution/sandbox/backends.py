"""Which back end runs programs: `gem_sandbox.Sandbox`, or one of another package.

The launcher chooses it, by the variable `VARIABLE` or an argument; no recipe and no client does.
"""

from __future__ import annotations

import os
import threading
from importlib.metadata import EntryPoint

from gem_core.env.registration.entry_points import list_entry_points
from gem_core.errors import did_you_mean
from gem_core.execution.sandbox.backend import Backend
from gem_core.execution.sandbox.levels import LEVELS, choose_level, fulfills
from gem_core.execution.sandbox.results import SandboxError

GROUP = "gem_core.sandboxes"
"""Group of the entry points of back ends: name -> class, see `Backend`."""
VARIABLE = "GEM_CORE_SANDBOX_BACKEND"
"""Environment variable that names the back end."""
NATIVE = "native"
"""The name of gem-core's own."""
_UNASKED = "container"
"""The least that a back end must promise where no level is asked for: *guarded* needs its name."""

_shared: dict[tuple[int, str, str | None, bool], Backend] = {}
_lock = threading.Lock()


def choose_backend(name: str | None = None) -> str:
    """Return the name of the back end: the argument, that in `VARIABLE`, or `NATIVE`.

    Raises:
        SandboxError: no installed package registers it, or two do, or gem-core is of an older
            installation.
    """
    chosen = name or os.environ.get(VARIABLE) or NATIVE
    known = _find_installed()
    if NATIVE not in known:
        raise SandboxError(
            "gem-core's own sandbox is not registered: install gem-core again, from a checkout by "
            "`pip install --no-deps -e .`."
        )
    if chosen not in known:
        raise SandboxError(
            f"There is no sandbox back end {chosen!r}: choose {', '.join(sorted(known))}, or "
            f"install the package that brings it.{did_you_mean(chosen, sorted(known))}"
        )
    return chosen


def make_backend(
    name: str | None = None, level: str | None = None, *, programs: bool = False
) -> Backend:
    """Return a new back end that promises a level; the caller closes it.

    Args:
        name: its name; ``None``: see `choose_backend`.
        level: one of `LEVELS` that is needed; ``None``: that of ``GEM_CORE_SANDBOX``, or else the
            strongest that the back end offers, but not *guarded*.
        programs: whether bash and the system's programs must run in it.

    Raises:
        SandboxUnavailable: it does not offer the level here.
        SandboxError: there is no such back end or level, or it promises less.
    """
    chosen = choose_backend(name)
    needed = choose_level(level)
    backend: Backend = _load(chosen)(needed, programs=programs)
    try:
        _check_promise(chosen, backend.level, needed)
    except SandboxError:
        backend.close()
        raise
    return backend


def get_shared_backend(level: str | None = None, *, programs: bool = False) -> Backend:
    """Return the back end that the parts of this process share, made at the first call.

    Args:
        level: the level that is needed, see `make_backend`.
        programs: see `make_backend`; such a back end is another one.

    Raises:
        SandboxUnavailable: this machine does not offer it.
        SandboxError: see `make_backend`.
    """
    name = choose_backend()
    needed = choose_level(level)
    with _lock:
        key = (os.getpid(), name, needed, programs)
        if key not in _shared:
            _shared[key] = make_backend(name, needed, programs=programs)
        return _shared[key]


def _find_installed() -> dict[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    for point in list_entry_points(GROUP):
        other = found.setdefault(point.name, point)
        if other.value != point.value:  # one would silently take the place of the other
            raise SandboxError(
                f"Two installed packages register the sandbox back end {point.name!r}, "
                f"{other.value} and {point.value}: uninstall one of them."
            )
    return found


def _load(name: str) -> type:
    point = _find_installed()[name]
    found = point.load()
    if not isinstance(found, type):
        raise SandboxError(f"The sandbox back end {name!r}, {point.value}, is no class.")
    return found


def _check_promise(name: str, promised: str, needed: str | None) -> None:
    if promised not in LEVELS:
        raise SandboxError(
            f"The sandbox back end {name!r} promises {promised!r}, which is no level: it must be "
            f"one of {', '.join(LEVELS)}."
        )
    if not fulfills(promised, needed or _UNASKED):
        raise SandboxError(
            f"The sandbox back end {name!r} promises the level {promised!r}, and "
            f"{needed or _UNASKED!r} is needed: choose another one ({VARIABLE}), or, if you trust "
            f"the programs, set GEM_CORE_SANDBOX={promised}."
        )
