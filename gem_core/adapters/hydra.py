"""Overrides in Hydra's grammar, for trainers that Hydra configures. Hydra itself is not needed."""

from __future__ import annotations

import json
import re
from typing import Any


def override(key: str, value: Any) -> str:
    """Return one override ``key=value``; text is quoted so that Hydra reads it back unchanged.

    A key that begins with ``~`` deletes that key and takes no value.

    >>> override("actor.lr", 1e-6), override("name", "it's"), override("~actor.min_lr", None)
    ('actor.lr=1e-06', "name='it\\\\'s'", '~actor.min_lr')
    """
    if key.startswith("~"):
        return key
    if isinstance(value, str):
        # In Hydra, backslashes have a meaning only before a quote, where they must be doubled.
        value = re.sub(r"(\\*)('|$)", lambda m: m[1] * 2 + ("\\'" if m[2] else ""), value)
        return f"{key}='{value}'"
    return f"{key}={json.dumps(value)}"
