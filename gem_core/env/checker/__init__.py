"""`check_env`: test whether an environment behaves as trainers need it to.

Each property is one function of this package; the first that does not hold raises `EnvCheckError`
with its name. Every environment of gem-core has all of them.
"""

from __future__ import annotations

from gem_core.env.checker.check import CHECKS, check_env
from gem_core.env.checker.inputs import MALFORMED
from gem_core.env.checker.subject import EnvCheckError, trace

__all__ = ["CHECKS", "MALFORMED", "EnvCheckError", "check_env", "trace"]
