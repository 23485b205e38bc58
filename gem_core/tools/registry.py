"""Tools by their names, those of other packages included."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from gem_core.errors import RegistrationError, unknown
from gem_core.tools.base import Tool

GROUP = "gem_core.tools"
"""Entry-point group in which a package offers tools: ``name = "module:Class"``."""

_BUILT_IN = {"python": "gem_core.tools.python:PythonTool"}


def list_tools() -> list[str]:
    """Return the names of all tools."""
    return sorted({*_BUILT_IN, *_points()})


def make_tool(name: str, **options: Any) -> Tool:
    """Return a new tool.

    Args:
        name: one of `list_tools`.
        options: arguments of the tool's class.

    Raises:
        UnknownNameError: there is no such tool.
        RegistrationError: the entry point does not give a `Tool`.
        TypeError: the tool has no such option.
    """
    if name in _BUILT_IN:
        module, _, attribute = _BUILT_IN[name].partition(":")
        kind = getattr(import_module(module), attribute)
    else:
        points = _points()
        if name not in points:
            raise unknown("tool", name, list_tools())
        kind = _loaded(points[name])
    tool = kind(**options)
    if not isinstance(tool, Tool):
        raise RegistrationError(f"The tool {name!r} is a {type(tool).__name__}, not a Tool.")
    return tool


def _points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _loaded(point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:
        raise RegistrationError(
            f"The tool {point.name!r} ({point.value}) cannot be imported: "
            f"{type(error).__name__}: {error}"
        ) from error
