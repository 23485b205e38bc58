"""The Model Context Protocol: sessions with MCP servers, their tools, and servers of our own.

The client is that of the package ``mcp``: ``pip install 'gem-core[mcp]'``.
"""

from __future__ import annotations

from gem_core.tools.mcp.pool import McpPool, pool_of
from gem_core.tools.mcp.session import KINDS, McpError, McpReply, McpServer, McpSession, ToolInfo
from gem_core.tools.mcp.tool import McpTool, mcp_tools

__all__ = [
    "KINDS",
    "McpError",
    "McpPool",
    "McpReply",
    "McpServer",
    "McpSession",
    "McpTool",
    "ToolInfo",
    "mcp_tools",
    "pool_of",
]
