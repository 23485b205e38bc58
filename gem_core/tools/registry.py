"""Tools by their names, those of other packages included."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import EntryPoint
from inspect import signature
from typing import Any

from gem_core.env.registration.entry_points import list_entry_points
from gem_core.env.registration.references import from_data, resolve_class
from gem_core.errors import RegistrationError, error_line, is_interruption, unknown
from gem_core.tools.base import Tool

GROUP = "gem_core.tools"
"""Entry-point group in which a package offers tools: ``name = "module:Class"``."""

_BUILT_IN = {
    "mcp": "gem_core.tools.mcp.tool:McpTool",
    "python": "gem_core.tools.python:PythonTool",
    "search": "gem_core.tools.search:SearchTool",
}


def list_tools() -> list[str]:
    """Return the names of all tools."""
    return sorted({*_BUILT_IN, *_points()})


def make_tool(name: str, **options: Any) -> Tool:
    """Return a new tool.

    Args:
        name: one of `list_tools`, or ``module:Class``.
        options: arguments of the tool's class.

    Raises:
        UnknownNameError: there is no such tool.
        TrustError: the name came as data, and is no class that an installed plugin defines.
        CodeReferenceError: there is no such class, or it is no `Tool`.
        RegistrationError: the entry point does not give a `Tool`.
        TypeError: the tool has no such option.
    """
    tool = _kind(name)(**options)
    if not isinstance(tool, Tool):
        raise RegistrationError(f"The tool {name!r} is a {type(tool).__name__}, not a Tool.")
    return tool


def check_tool(name: str, options: Iterable[str]) -> dict[str, Any]:
    """Check that there is a tool with these options, which came as data, without making it.

    Returns:
        The tool's options and their defaults; those that have none are left out.

    Raises:
        UnknownNameError: there is no such tool, or no such option of it.
        TrustError: as `make_tool`.
        RegistrationError: its entry point cannot be imported.
    """
    with from_data():
        parameters = signature(_kind(name)).parameters.values()
    known = [p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        for option in options:
            if option not in known:
                listing = f"It takes: {', '.join(known) or 'none'}."
                raise unknown(f"option of the tool {name!r}:", option, known, listing)
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def _kind(name: str) -> Any:
    if name in _BUILT_IN:
        module, _, attribute = _BUILT_IN[name].partition(":")
        return getattr(import_module(module), attribute)
    if ":" in name:
        return resolve_class(name, Tool, "tool")
    points = _points()
    if name not in points:
        raise unknown("tool", name, list_tools(), f"There are: {', '.join(list_tools())}.")
    return _load(points[name])


def _points() -> dict[str, EntryPoint]:
    return {point.name: point for point in list_entry_points(GROUP)}


def _load(point: EntryPoint) -> Any:
    try:
        return point.load()
    except BaseException as error:
        if is_interruption(error):
            raise
        raise RegistrationError(
            f"The tool {point.name!r} ({point.value}) cannot be imported: {error_line(error)}"
        ) from error
