"""Where untrusted programs run: the protocol of back ends, levels of isolation, limits, results.

The back end of gem-core is `gem_sandbox.Sandbox`; the entry points `gem_core.sandboxes` name it and
those of other packages.

>>> from gem_core.execution.sandbox import make_backend
>>> backend = make_backend()
>>> backend.run("print(6 * 7)").output.strip()
'42'
>>> backend.close()
"""

from __future__ import annotations

from gem_core.execution.sandbox.backend import Backend, BackendSession
from gem_core.execution.sandbox.backends import get_shared_backend, make_backend
from gem_core.execution.sandbox.levels import DEFAULTS, LEVELS
from gem_core.execution.sandbox.results import (
    KINDS,
    SandboxError,
    SandboxLimits,
    SandboxResult,
    SandboxUnavailable,
)

__all__ = [
    "DEFAULTS",
    "KINDS",
    "LEVELS",
    "Backend",
    "BackendSession",
    "SandboxError",
    "SandboxLimits",
    "SandboxResult",
    "SandboxUnavailable",
    "get_shared_backend",
    "make_backend",
]
