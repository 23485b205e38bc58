"""Values as overrides in hydra's grammar, for trainers that hydra configures; no hydra needed."""

from __future__ import annotations

import json
import re
from typing import Any


def override(key: str, value: Any) -> str:
    """One override ``key=value``; text is quoted so that hydra reads it back as it is.

    A key that begins with ``~`` is deleted and takes no value.

    >>> override("actor.lr", 1e-6), override("name", "it's"), override("~actor.min_lr", None)
    ('actor.lr=1e-06', "name='it\\\\'s'", '~actor.min_lr')
    """
    if key.startswith("~"):
        return key
    if isinstance(value, str):
        # Hydra: backslashes count only before a quote, and are doubled there.
        value = re.sub(r"(\\*)('|$)", lambda m: m[1] * 2 + ("\\'" if m[2] else ""), value)
        return f"{key}='{value}'"
    return f"{key}={json.dumps(value)}"
