"""How clients reach a server: addresses, tokens, and what went wrong; imports no client library."""

from __future__ import annotations

import json
import logging
import os
from typing import Any
from urllib.parse import quote, urlsplit

from gem_core.errors import GemError
from gem_core.execution.server_client.addresses import TOKEN_VARIABLE, is_loopback

CONNECT_S = 10.0
MAX_BYTES = 64 << 20
_log = logging.getLogger(__name__)
# The library writes the headers of a request, and with them the token, at the level DEBUG.
_log.setLevel(logging.WARNING)


class ServerError(GemError, RuntimeError):
    """What a server answered with an error, or that it is gone.

    Attributes:
        code: OpenEnv's name of the reason, or ``CLOSED`` (the connection was lost), ``UNREACHABLE``
            (there is no server), ``UNAVAILABLE`` (there is one that cannot serve now), ``REFUSED``.
        data: what else the answer says.
    """

    def __init__(self, message: str, code: str, data: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data or {}


def socket_url(url: str) -> str:
    """Return the WebSocket's address.

    >>> socket_url("http://127.0.0.1:8000/")
    'ws://127.0.0.1:8000/ws'

    Raises:
        GemError: the address is of another kind.
    """
    kind, separator, rest = url.partition("://")
    kinds = {"http": "ws", "ws": "ws", "https": "wss", "wss": "wss"}
    if not separator or kind not in kinds:
        raise GemError(f"{url!r} is no address of a server: http://127.0.0.1:8000")
    return f"{kinds[kind]}://{rest.rstrip('/')}/ws"


def session_path(url: str, environment: str) -> str:
    """Return the address of an environment of a server, for `socket_url`.

    >>> session_path("http://127.0.0.1:8000/", "game:X-v0")
    'http://127.0.0.1:8000/env/game:X-v0'
    """
    return f"{url.rstrip('/')}/env/{quote(environment, safe=':')}"


def session_query(parameters: dict[str, Any]) -> str:
    """Return what follows the path of the WebSocket, for an environment with parameters."""
    return f"?parameters={quote(json.dumps(parameters))}" if parameters else ""


def connect_options(url: str) -> dict[str, Any]:
    """Return what both clients of ``websockets`` are given.

    They send no pings: a trainer that holds the interpreter for long would take its own delay for
    the server's end. The deadline of a call ends what a dead connection would not.

    Raises:
        GemError: a token would travel unencrypted to another machine.
    """
    local = is_loopback(urlsplit(url).hostname)
    options: dict[str, Any] = {"proxy": None} if local else {}
    return {
        "ping_interval": None,
        "open_timeout": CONNECT_S,
        "max_size": MAX_BYTES,
        "compression": None,
        "additional_headers": _token_header(url, local),
        "logger": _log,
        **options,
    }


def _token_header(url: str, local: bool) -> dict[str, str]:
    token = os.environ.get(TOKEN_VARIABLE)
    if not token:
        return {}
    if not local and not url.startswith("wss://"):
        raise GemError(
            f"The token would travel unencrypted to {url}: use https, or a tunnel to 127.0.0.1."
        )
    return {"Authorization": f"Bearer {token}"}


def not_connected(url: str, error: Exception) -> ServerError:
    """Return why there is no connection, from the error of ``websockets`` or of the system."""
    if isinstance(error, OSError | TimeoutError):
        return ServerError(f"No server at {url}: {error}", "UNREACHABLE")
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is None or status >= 500:
        return ServerError(f"{url} cannot serve now: {error}", "UNAVAILABLE")
    hints = {401: f"is {TOKEN_VARIABLE} set to its token", 404: "is it a gem-core server"}
    hint = f"; {hints[status]}?" if status in hints else ""
    return ServerError(f"{url} refused: {error}{hint}", "REFUSED")


def read_answer(raw: str | bytes) -> dict[str, Any]:
    """Return the data of an answer.

    Raises:
        ServerError: it is an error, or no message of the protocol.
    """
    try:
        reply = json.loads(raw)
        failed, data = reply.get("type") == "error", dict(reply.get("data") or {})
    except (ValueError, TypeError, AttributeError):
        text = f"The server answered with what is no message of OpenEnv: {raw[:80]!r}"
        raise ServerError(text, "REFUSED") from None
    if failed:
        raise ServerError(str(data.get("message")), str(data.get("code")), data)
    return data
