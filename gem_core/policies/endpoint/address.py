"""The address of an endpoint, and the proxy on the way to it."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

from gem_core.runs.redaction import redact_text


def split_address(base_url: str) -> SplitResult:
    """Return the parts of an address that can be asked.

    Raises:
        ValueError: it is not one of http or https, or has what is not sent; the message has no
            password of it.
    """
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{redact_text(base_url)!r} is not an address like https://host/v1.")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("the address has a user, a query or a fragment, which are not sent.")
    return parts


def find_proxy(base_url: str) -> str | None:
    """Return the proxy that the environment names for an address; ``None``: there is none.

    ``HTTP_PROXY`` and ``HTTPS_PROXY`` (or in small letters) name it, ``NO_PROXY`` the hosts that
    are asked without one.

    Raises:
        ValueError: the address is not one of http or https, or the proxy is not; the message has
            no password of either.
    """
    parts = split_address(base_url)
    proxy = getproxies().get(parts.scheme)
    if proxy is None or proxy_bypass(parts.netloc):
        return None
    address = urlsplit(proxy)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise ValueError(
            f"{parts.scheme.upper()}_PROXY is {redact_text(proxy)!r}: name an HTTP proxy like "
            "http://host:3128, or none."
        )
    return proxy
