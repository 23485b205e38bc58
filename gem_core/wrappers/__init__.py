"""Wrappers: environments around environments."""

from __future__ import annotations

from .time_limit import TimeLimit

__all__ = ["TimeLimit"]
