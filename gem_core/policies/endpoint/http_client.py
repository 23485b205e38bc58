"""Posts JSON to one address: connections are kept, memory and time are bounded.

The client is aiohttp's. The SDKs cost more processor time per request than an environment's turn
(benchmarks/evaluation), so that they, and not the server, would limit an evaluation with many
episodes at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from gem_core.errors import MissingDependencyError
from gem_core.policies.endpoint.address import find_proxy
from gem_core.runs.redaction import redact_text

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

MAX_FIELD = 64 * 1024
"""Bytes of a status line, and of a header."""
MAX_BODY = 64 * 1024 * 1024
"""Bytes of a body; a longer one is not an answer to a request of this package."""


class HttpError(Exception):
    """The connection failed, or what came is not HTTP/1.1."""


class Response(NamedTuple):
    """An answer.

    Attributes:
        status: the status code.
        headers: names in small letters.
        body: the whole body.
    """

    status: int
    headers: dict[str, str]
    body: bytes


def require_client() -> None:
    """Check that aiohttp is installed, without importing it.

    Raises:
        MissingDependencyError: it is missing.
    """
    if find_spec("aiohttp") is None:
        raise MissingDependencyError("An endpoint needs aiohttp: pip install 'gem-core[endpoint]'.")


class HttpClient:
    """Posts to paths below one address. Use it in one event loop, and `close` it at the end.

    Redirects are not followed: the headers have a key, which is for this address only. Cookies are
    not kept.

    Args:
        base_url: ``https://host:port/path``; TLS certificates are verified.
        headers: sent with each request.

    Raises:
        MissingDependencyError: aiohttp is missing.
        ValueError: the address, its proxy or a header cannot be used.
    """

    def __init__(self, base_url: str, headers: Mapping[str, str]) -> None:
        require_client()
        for name, value in headers.items():
            if any(sign in name + value for sign in "\r\n\0") or not value.isascii():
                raise ValueError(f"The header {name!r} has characters that HTTP does not allow.")
        # Not aiohttp's `trust_env`: it also sends passwords of ~/.netrc, and reads that file and
        # the environment in a thread at each request.
        self._proxy = find_proxy(base_url)
        self._address = base_url.rstrip("/")
        # Given with each request: aiohttp sends those of a session to the proxy, too.
        self._headers = dict(headers)
        self._session: ClientSession | None = None

    async def post(self, path: str, body: bytes) -> Response:
        """Post a body and read the whole answer.

        A connection is closed, and not used again, if anything fails, a cancellation included.

        Raises:
            HttpError: there is no connection, it was cut, or the answer is not HTTP.
        """
        from aiohttp import ClientError

        if self._session is None:
            self._session = _open_session()
        try:
            async with self._session.post(
                self._address + path,
                data=body,
                headers=self._headers,
                allow_redirects=False,
                proxy=self._proxy,
            ) as answer:
                headers = {name.lower(): value for name, value in answer.headers.items()}
                return Response(answer.status, headers, await _read_body(answer))
        except (ClientError, OSError, ValueError) as error:
            raise HttpError(redact_text(f"{type(error).__name__}: {error}")) from error

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None


def _open_session() -> ClientSession:
    """Return a session without limits of connections and time: its caller has these."""
    from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

    return ClientSession(
        connector=TCPConnector(limit=0),
        cookie_jar=DummyCookieJar(),
        timeout=ClientTimeout(total=None, sock_connect=None),
        skip_auto_headers=("Accept-Encoding",),
        max_line_size=MAX_FIELD,
        max_field_size=MAX_FIELD,
    )


async def _read_body(answer: ClientResponse) -> bytes:
    """Return the body; `ValueError` if it is too long."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in answer.content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > MAX_BODY:
            raise ValueError(f"an answer of more than {MAX_BODY} bytes, which are the most read")
    return b"".join(chunks)
