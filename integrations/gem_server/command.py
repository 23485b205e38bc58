"""``gem-core serve``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from gem_core.errors import GemError, MissingDependencyError

HOST = "127.0.0.1"
"""The address of a server by the Model Context Protocol; other machines reach it through a tunnel
or a proxy."""
PORT = 8000
MCP_SESSIONS = 64
HTTP_SESSIONS = 2048
MORE_CONNECTIONS = 256
"""Connections beyond the sessions."""


def serve(arguments: argparse.Namespace) -> int:
    """Serve environments until the client goes, or until Ctrl-C."""
    return _serve_mcp(arguments) if arguments.mcp else _serve_http(arguments)


def _serve_http(arguments: argparse.Namespace) -> int:
    try:
        from gem_server import program
    except ImportError as error:
        raise MissingDependencyError(
            f"gem-core serve needs {error.name}: pip install 'gem-core[server]'."
        ) from None
    from gem_core.execution.server_client.addresses import TOKEN_VARIABLE
    from gem_server.limits import ServerLimits

    sessions = arguments.sessions or HTTP_SESSIONS
    limits = ServerLimits(
        environments=tuple(arguments.environments),
        sessions=sessions,
        idle_s=arguments.idle,
        call_s=arguments.deadline,
        message_bytes=arguments.message_bytes,
        connections=sessions + MORE_CONNECTIONS,
        memory_mb=arguments.memory_mb,
        parameters=arguments.parameters or bool(arguments.recipe),
        allowed=_list_allowed(arguments.recipe),
    )
    _require_environments(arguments.environments)
    port = PORT if arguments.port is None else arguments.port
    token = os.environ.get(TOKEN_VARIABLE) or None
    with suppress(KeyboardInterrupt):  # the server has ended, and passes the signal on
        program.run(limits, host=arguments.host, port=port, token=token)
    return 0


def _require_environments(patterns: Sequence[str]) -> None:
    """Refuse patterns of which none matches; ids of other packages are not listed anywhere.

    Raises:
        GemError: nothing would be served.
    """
    from gem_core.env.registration import is_foreign, list_envs

    if not any(is_foreign(pattern) or list_envs(pattern) for pattern in patterns):
        raise GemError(f"No environment matches {' '.join(patterns)}; `gem-core list` has all ids.")


def _list_allowed(recipes: Sequence[str]) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """Return id and parameters of every environment of the operator's recipes."""
    if not recipes:
        return ()
    from gem_core.runs.recipe.load import load_recipe

    loaded = [load_recipe(recipe) for recipe in recipes]
    return tuple((env.id, env.kwargs) for one in loaded for env in [*one.env, *one.eval.env])


def _serve_mcp(arguments: argparse.Namespace) -> int:
    from gem_server.mcp_server import make_server
    from gem_server.mcp_sessions import EnvSessions, ServeLimits

    if arguments.host != HOST:
        raise GemError(f"By --mcp, environments are served on {HOST} only.")
    limits = ServeLimits(
        environments=tuple(arguments.environments),
        sessions=arguments.sessions or MCP_SESSIONS,
        idle_s=arguments.idle,
        call_s=arguments.deadline,
        parameters=arguments.parameters or bool(arguments.recipe),
        allowed=_list_allowed(arguments.recipe),
    )
    sessions = EnvSessions(limits)
    if not sessions.environments():
        raise GemError(f"No environment matches {' '.join(arguments.environments)}.")
    server = make_server(sessions)
    try:
        if arguments.port is None:
            server.run("stdio")
        else:
            print(f"serving on http://{HOST}:{arguments.port}/mcp", file=sys.stderr, flush=True)
            server.run("streamable-http", host=HOST, port=arguments.port)
    except KeyboardInterrupt:
        pass
    finally:
        sessions.close_all()
    return 0
