"""How untrusted programs are run: `Sandbox`, its levels of isolation and its limits.

>>> from gem_core.execution.sandbox import Sandbox
>>> with Sandbox() as sandbox:
...     print(sandbox.run("print(6 * 7)").output.strip())
42
"""

from __future__ import annotations

from gem_core.execution.sandbox.backend import Backend, BackendSession
from gem_core.execution.sandbox.backends import get_shared_backend, make_backend
from gem_core.execution.sandbox.levels import DEFAULTS, LEVELS
from gem_core.execution.sandbox.offers import Offer, offers
from gem_core.execution.sandbox.results import (
    KINDS,
    SandboxError,
    SandboxLimits,
    SandboxResult,
    SandboxUnavailable,
)
from gem_core.execution.sandbox.sandbox import Sandbox
from gem_core.execution.sandbox.session import SandboxSession

__all__ = [
    "DEFAULTS",
    "KINDS",
    "LEVELS",
    "Backend",
    "BackendSession",
    "Offer",
    "Sandbox",
    "SandboxError",
    "SandboxLimits",
    "SandboxResult",
    "SandboxSession",
    "SandboxUnavailable",
    "get_shared_backend",
    "make_backend",
    "offers",
]
