"""An MCP server whose tools play environments: ``gem-core serve --mcp``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from gem_core.errors import GemError, no_exit
from gem_core.tools.mcp.session import require_sdk
from gem_server.mcp_sessions import EnvSessions

T = TypeVar("T")
_INSTRUCTIONS = """Text environments. list_environments names them; reset starts an episode and
returns its session and first observation; step plays an action and returns the next observation,
the reward and whether the episode is over; close ends a session."""


def make_server(sessions: EnvSessions) -> Any:
    """Return the MCP server of some sessions.

    Raises:
        MissingDependencyError: the package ``mcp`` is not installed.
    """
    require_sdk()
    module: Any = importlib.import_module("mcp.server.mcpserver")
    server = module.MCPServer("gem-core", instructions=_INSTRUCTIONS, log_level="ERROR")
    call = partial(_call, sessions.limits.call_s)

    async def list_environments(pattern: str = "") -> dict[str, Any]:
        """Return the ids of the environments, all or those that match a pattern (game:*)."""
        return {"environments": await call(sessions.environments, pattern)}

    async def reset(
        environment: str, seed: int | None = None, parameters: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Start an episode in a new session; the same seed gives the same episode."""
        result: dict[str, Any] = await call(sessions.reset, environment, seed, parameters)
        return result

    async def step(session: str, action: str) -> dict[str, Any]:
        """Play an action, a text in the format that the first observation asks for."""
        result: dict[str, Any] = await call(sessions.step, session, action)
        return result

    async def close(session: str) -> dict[str, Any]:
        """End a session."""
        await call(sessions.close, session)
        return {"closed": session}

    for function in (list_environments, reset, step, close):
        server.add_tool(function)
    return server


async def _call(seconds: float, function: Callable[..., T], *arguments: Any) -> T:
    """Run a function in a thread; what it refuses, and its deadline, are errors for the client."""
    anyio = importlib.import_module("anyio")
    exceptions = importlib.import_module("mcp.server.mcpserver.exceptions")
    try:
        with anyio.fail_after(seconds):
            result: T = await anyio.to_thread.run_sync(
                partial(_run, function, *arguments), abandon_on_cancel=True
            )
            return result
    except TimeoutError:
        raise exceptions.ToolError(f"The environment did not answer in {seconds:g} s.") from None
    except (GemError, TypeError) as error:
        raise exceptions.ToolError(str(error)) from error


def _run(function: Callable[..., T], *arguments: Any) -> T:
    with no_exit("The environment failed"):  # an exit would end the server
        return function(*arguments)
