"""The sandbox of gem-core: untrusted programs in processes that reach nothing but their own folder.

>>> from gem_sandbox import Sandbox
>>> with Sandbox() as sandbox:
...     print(sandbox.run("print(6 * 7)").output.strip())
42
"""

from __future__ import annotations

from gem_sandbox.offers import Offer, offers
from gem_sandbox.sandbox import Sandbox
from gem_sandbox.session import SandboxSession

__all__ = ["Offer", "Sandbox", "SandboxSession", "offers"]
