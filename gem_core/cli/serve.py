"""``gem-core serve``."""

from __future__ import annotations

import argparse
import sys

from gem_core.errors import GemError
from gem_core.tools.mcp.env_server import make_server
from gem_core.tools.mcp.env_sessions import EnvSessions, ServeLimits

HOST = "127.0.0.1"
"""The only address that is listened on; other machines reach it through a tunnel or a proxy."""


def serve(arguments: argparse.Namespace) -> int:
    """Serve environments until the client goes, or until Ctrl-C."""
    if not arguments.mcp:
        raise GemError("gem-core serve needs a protocol: gem-core serve --mcp")
    limits = ServeLimits(
        environments=tuple(arguments.environments),
        sessions=arguments.sessions,
        idle_s=arguments.idle,
        call_s=arguments.deadline,
        parameters=arguments.parameters,
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
