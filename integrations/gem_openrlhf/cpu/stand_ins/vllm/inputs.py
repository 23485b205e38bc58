"""Prompt types of vLLM."""

from __future__ import annotations

from typing import Any


def TokensPrompt(**fields: Any) -> dict[str, Any]:
    """A prompt of token ids."""
    return dict(fields)
