"""Who may use a server: tokens, and no pages of a browser."""

from __future__ import annotations

import hmac

from starlette.requests import HTTPConnection

from gem_core.execution.server_client.addresses import is_loopback


def refusal(connection: HTTPConnection, token: str | None) -> str | None:
    """Return why a connection is refused, or ``None``.

    Without a token, only programs on this machine reach the server; pages that a browser on it
    shows could too, so connections that a page opened are refused.
    """
    if token is None:
        if "origin" in connection.headers:
            return "origin"
        host = connection.headers.get("host", "").rsplit(":", 1)[0].strip("[]")
        return None if is_loopback(host) else "host"
    kind, _, given = connection.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode()):
        return None
    return "token"
