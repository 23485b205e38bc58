"""Wrappers: environments around other environments."""

from __future__ import annotations

from gem_core.wrappers.time_limit import TimeLimit

__all__ = ["TimeLimit"]
