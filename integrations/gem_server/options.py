"""The arguments of ``gem-core serve``. Nothing here imports what the command needs."""

from __future__ import annotations

import argparse

from gem_core.cli.commands import Command
from gem_core.cli.options import add_trust
from gem_core.cli.values import port, positive, positive_seconds


def add_serve_options(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    verb.add_argument(
        "--mcp",
        action="store_true",
        help="by the Model Context Protocol, on standard input or, with --port, by streamable HTTP",
    )
    verb.add_argument("--port", type=port, help="port (default: 8000; with --mcp standard input)")
    verb.add_argument(
        "--host",
        default="127.0.0.1",
        help="address; another than the default needs a token in GEM_CORE_SERVER_TOKEN",
    )
    verb.add_argument(
        "--environments",
        nargs="+",
        default=["*"],
        metavar="PATTERN",
        help="which environments, such as game:* (default: all)",
    )
    _add_client_limits(verb)
    add_trust(verb)


def _add_client_limits(verb: argparse.ArgumentParser) -> None:
    """Add what clients of a server may use."""
    verb.add_argument(
        "--sessions", type=positive, help="sessions at once (default: 2048; with --mcp 64)"
    )
    verb.add_argument(
        "--message-bytes",
        type=positive,
        default=1 << 20,
        help="size of a client's message (default: %(default)s)",
    )
    verb.add_argument(
        "--memory-mb",
        type=float,
        default=4096.0,
        help="memory of the server from which on it opens no session (default: %(default)g)",
    )
    verb.add_argument(
        "--idle",
        type=positive_seconds,
        default=1800.0,
        metavar="SECONDS",
        help="a session without a call for so long may be closed (default: %(default)s)",
    )
    verb.add_argument(
        "--deadline",
        type=positive_seconds,
        default=60.0,
        metavar="SECONDS",
        help="wall time of a call (default: %(default)s)",
    )
    verb.add_argument(
        "--parameters",
        action="store_true",
        help="let clients set the parameters that environments declare (gem-core show ENV)",
    )
    verb.add_argument(
        "--recipe",
        action="append",
        default=[],
        metavar="BASELINE|FILE",
        help="also let clients set just the values that this recipe of yours gives its "
        "environments; may be repeated",
    )


COMMAND = Command(
    "serve environments to other programs", "gem_server.command:serve", add_serve_options
)
