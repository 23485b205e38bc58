"""What both sides know of a connection; imports nothing."""

TOKEN_VARIABLE = "GEM_CORE_SERVER_TOKEN"
"""The variable in which servers and clients look for the token."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def is_loopback(host: str | None) -> bool:
    """Return whether a host is this machine."""
    return host in LOOPBACK
