"""Helpers of vLLM."""

from __future__ import annotations

import uuid


def random_uuid() -> str:
    """A request id."""
    return uuid.uuid4().hex
