"""Tools that an agent calls in its text: `Tool`, `ToolEnv`, and the Python tool."""

from __future__ import annotations

from gem_core.tools.base import Call, Tool, ToolResult
from gem_core.tools.registry import check_tool, list_tools, make_tool
from gem_core.tools.tool_env import Budget, ToolEnv, ToolRewards

__all__ = [
    "Budget",
    "Call",
    "Tool",
    "ToolEnv",
    "ToolResult",
    "ToolRewards",
    "check_tool",
    "list_tools",
    "make_tool",
]
