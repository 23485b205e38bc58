"""A small asynchronous HTTP/1.1 client for JSON: connections are kept, memory and time are bounded.

The SDKs cost more processor time per request than an environment's turn (benchmarks/evaluation), so
that they, and not the server, would limit an evaluation with many episodes at once.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from gem_core.runs.redaction import redact_text

MAX_HEAD = 64 * 1024
"""Bytes of a status line and its headers."""
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


class HttpClient:
    """Posts to paths below one address. Use it in one event loop, and `close` it at the end.

    Args:
        base_url: ``https://host:port/path``; TLS certificates are verified.
        headers: sent with each request.

    Raises:
        ValueError: the address is not one of http or https.
    """

    def __init__(self, base_url: str, headers: Mapping[str, str]) -> None:
        parts = split_address(base_url)
        for name, value in headers.items():
            if any(sign in name + value for sign in "\r\n\0") or not value.isascii():
                raise ValueError(f"The header {name!r} has characters that HTTP does not allow.")
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._path = parts.path.rstrip("/")
        lines = [f"{name}: {value}" for name, value in headers.items()]
        self._head = "\r\n".join([f"host: {parts.netloc.rpartition('@')[2]}", *lines])
        self._idle: list[_Connection] = []

    async def post(self, path: str, body: bytes) -> Response:
        """Post a body and read the whole answer.

        A connection is closed, and not used again, if anything fails, a cancellation included.

        Raises:
            HttpError: there is no connection, it was cut, or the answer is not HTTP.
        """
        request = (
            f"POST {self._path}{path} HTTP/1.1\r\n{self._head}\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        ).encode() + body
        connection = await self._connection()
        try:
            response = await connection.exchange(request)
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
            connection.close()
            raise HttpError(f"{type(error).__name__}: {error}") from error
        except BaseException:
            connection.close()
            raise
        if connection.reusable:
            self._idle.append(connection)
        else:
            connection.close()
        return response

    def close(self) -> None:
        """Close the connections that are not in use."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def _connection(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.alive:
                return connection
            connection.close()
        try:
            reader, writer = await asyncio.open_connection(
                self._host, self._port, ssl=self._tls, limit=MAX_HEAD
            )
        except OSError as error:
            raise HttpError(f"{type(error).__name__}: {error}") from error
        return _Connection(reader, writer)


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.reusable = False

    @property
    def alive(self) -> bool:
        """Whether the server has not closed it."""
        return not self._reader.at_eof() and not self._writer.is_closing()

    def close(self) -> None:
        self._writer.close()

    async def exchange(self, request: bytes) -> Response:
        """Send a request and read its answer; `ValueError` if it is not one."""
        self.reusable = False
        self._writer.write(request)
        await self._writer.drain()
        status, headers, minor = await self._read_head()
        while 100 <= status < 200:  # provisional
            status, headers, minor = await self._read_head()
        body, whole = await self._read_body(status, headers)
        said = headers.get("connection", "").lower()
        self.reusable = whole and (said == "keep-alive" or (minor == 1 and "close" not in said))
        return Response(status, headers, body)

    async def _read_head(self) -> tuple[int, dict[str, str], int]:
        head = await self._reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")[:-2]
        version, _, rest = first.partition(" ")
        code = rest[:3]
        if version not in ("HTTP/1.0", "HTTP/1.1") or not (code.isascii() and code.isdigit()):
            raise ValueError(f"not the first line of an HTTP answer: {first[:60]!r}")
        headers = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon:
                raise ValueError(f"not a header: {line[:60]!r}")
            headers[name.strip().lower()] = value.strip()
        return int(code), headers, int(version[-1])

    async def _read_body(self, status: int, headers: Mapping[str, str]) -> tuple[bytes, bool]:
        """Return the body, and whether its end was marked, so that another answer may follow."""
        if status in (204, 304):
            return b"", True
        if "chunked" in headers.get("transfer-encoding", "").lower():
            return await self._read_chunks(), True
        if "content-length" in headers:
            return await self._reader.readexactly(_size(headers["content-length"], 10)), True
        body = await self._reader.read(MAX_BODY + 1)
        while not self._reader.at_eof() and len(body) <= MAX_BODY:
            body += await self._reader.read(MAX_BODY)
        _size(str(len(body)), 10)
        return body, False

    async def _read_chunks(self) -> bytes:
        chunks: list[bytes] = []
        total = 0
        while True:
            line = await self._reader.readuntil(b"\r\n")
            size = _size(line.split(b";")[0].strip().decode("latin-1"), 16)
            if size == 0:
                break
            total = _size(str(total + size), 10)
            chunks.append(await self._reader.readexactly(size))
            await self._reader.readexactly(2)
        while await self._reader.readuntil(b"\r\n") != b"\r\n":
            pass  # trailers
        return b"".join(chunks)


def _size(digits: str, base: int) -> int:
    if not digits.isalnum():
        raise ValueError(f"not a length: {digits[:60]!r}")
    size = int(digits, base)
    if size > MAX_BODY:
        raise ValueError(f"an answer of {size} bytes; at most {MAX_BODY} are read")
    return size
