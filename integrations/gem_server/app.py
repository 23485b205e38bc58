"""The application: routes of HTTP and the WebSocket, for Starlette."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from gem_core.env.registration import client_parameters
from gem_core.env.registration.parameters import parameters_schema
from gem_core.errors import GemError
from gem_server import messages
from gem_server.access import refusal
from gem_server.limits import RefusedError, ServerLimits
from gem_server.metrics import ServerMetrics
from gem_server.sessions import Session, Sessions, is_served, list_served

_log = logging.getLogger(__name__)
_POLICY = 1008  # WebSocket's code of a refused message
_TOO_BIG = 1009


class EnvServer:
    """The routes of one server.

    Paths of a WebSocket are OpenEnv's with the environment in front: ``/env/<id>/ws``. A session of
    HTTP has a name and lives until it is deleted or idle; one of a WebSocket lives as long as its
    connection.

    Args:
        limits: what clients may use.
        token: what clients have to send as ``Authorization: Bearer``; ``None``: nothing, and the
            server must listen on the loopback only.
    """

    def __init__(self, limits: ServerLimits | None = None, token: str | None = None) -> None:
        self.limits = limits or ServerLimits()
        self.metrics = ServerMetrics()
        self.sessions = Sessions(self.limits, self.metrics)
        self._token = token

    def app(self) -> Starlette:
        """Return the application."""
        guard = self._guard
        routes = [
            Route("/health", self._health),
            Route("/env/{id}/health", self._health),
            Route("/metrics", guard(self._metrics)),
            Route("/environments", guard(self._environments)),
            Route("/env/{id}/schema", guard(self._schema)),
            Route("/env/{id}/metadata", guard(self._about)),
            Route("/sessions", guard(self._open), methods=["POST"]),
            Route("/sessions/{name}", guard(self._delete), methods=["DELETE"]),
            Route("/sessions/{name}/{kind}", guard(self._call), methods=["POST"]),
            WebSocketRoute("/env/{id}/ws", self._socket),
        ]
        return Starlette(routes=routes, lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        reaper = asyncio.create_task(self.sessions.close_idle())
        try:
            yield
        finally:
            reaper.cancel()
            with suppress(asyncio.CancelledError):
                await reaper
            await self.sessions.close_all()

    def _refusal(self, connection: HTTPConnection) -> str | None:
        reason = refusal(connection, self._token)
        if reason is not None:
            self.metrics.count("refused_total", reason)
        return reason

    def _guard(
        self, handler: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            reason = self._refusal(request)
            if reason is not None:
                return JSONResponse({"error": f"refused: {reason}"}, 401)
            try:
                return await handler(request)
            except ClientDisconnect:
                return Response(status_code=400)  # nobody reads it
            except RefusedError as error:
                self.metrics.count("errors_total", error.code)
                return JSONResponse({"error": str(error), "code": error.code}, error.status)

        return handle

    # --- HTTP ----------------------------------------------------------------------------------

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"status": "healthy"})

    async def _metrics(self, request: Request) -> Response:
        sessions = self.sessions
        accept = request.headers.get("accept", "")
        gauges = {"sessions": sessions.count, "hung_calls": sessions.hung}
        content, content_type = self.metrics.encode(accept, **gauges)
        return Response(content, media_type=content_type)

    async def _environments(self, request: Request) -> Response:
        return JSONResponse(list_served(self.limits.environments))

    async def _schema(self, request: Request) -> Response:
        name = request.path_params["id"]
        if not is_served(name, self.limits.environments):
            return JSONResponse(messages.SCHEMA)
        declared = client_parameters(name) if self.limits.parameters else {}
        return JSONResponse({**messages.SCHEMA, "parameters": parameters_schema(declared)})

    async def _about(self, request: Request) -> Response:
        name = request.path_params["id"]
        return JSONResponse({"name": name, "description": f"{name} of gem-core"})

    async def _open(self, request: Request) -> Response:
        body = await self._body(request)
        environment = body.get("environment")
        if not isinstance(environment, str):
            raise RefusedError("environment is the id of one.")
        session = await self.sessions.open(environment, _parameters(body.get("parameters", {})))
        return JSONResponse({"session": session.name})

    async def _delete(self, request: Request) -> Response:
        await self.sessions.close(self.sessions.find(request.path_params["name"]), "client")
        return JSONResponse({})

    async def _call(self, request: Request) -> Response:
        session = self.sessions.find(request.path_params["name"])
        kind = request.path_params["kind"]
        body = await self._body(request)
        reply = await self._answer(session, {"type": kind, "data": body})
        failed = reply["type"] == "error"
        return JSONResponse(reply["data"], 400 if failed else 200)

    async def _body(self, request: Request) -> dict[str, Any]:
        content = bytearray()
        async for piece in request.stream():
            content += piece
            if len(content) > self.limits.message_bytes:
                self.metrics.count("refused_total", "size")
                raise RefusedError(
                    f"A message has at most {self.limits.message_bytes} bytes.", "TOO_BIG", 413
                )
        return messages.read(content.decode("utf-8", "replace")) if content else {}

    # --- WebSocket -----------------------------------------------------------------------------

    async def _socket(self, socket: WebSocket) -> None:
        reason = self._refusal(socket)
        if reason is not None:
            await socket.send_denial_response(JSONResponse({"error": f"refused: {reason}"}, 401))
            return
        await socket.accept()
        try:
            parameters = messages.read(socket.query_params.get("parameters", "{}"))
            session = await self.sessions.open(socket.path_params["id"], parameters)
        except (RefusedError, ValueError) as error:
            refused = error if isinstance(error, RefusedError) else RefusedError(str(error))
            self.metrics.count("refused_total", refused.code)
            await self._send(socket, messages.error_message(refused))
            await _hang_up(socket, _POLICY)
            return
        ended = "client"
        try:
            ended = await self._serve(socket, session)
        finally:
            await asyncio.shield(self.sessions.close(session, ended))

    async def _serve(self, socket: WebSocket, session: Session) -> str:
        """Answer the messages of a connection; return why it ended."""
        while True:
            try:
                raw = await asyncio.wait_for(socket.receive_text(), self.limits.idle_s)
            except TimeoutError:
                await _hang_up(socket, _POLICY)
                return "idle"
            except (WebSocketDisconnect, KeyError):  # KeyError: a message of bytes
                return "disconnected"
            reply = await self._reply(session, raw)
            if reply is None:
                await _hang_up(socket)
                return "client"
            if not await self._send(socket, reply):
                return "disconnected"
            if not self.sessions.is_open(session):
                await _hang_up(socket, _POLICY)
                return "deadline"

    async def _reply(self, session: Session, raw: str) -> messages.Message | None:
        """Return the answer to a message; ``None`` to ``close``."""
        try:
            message = messages.read(raw)
        except RefusedError as error:
            self.metrics.count("errors_total", error.code)
            return messages.error_message(error)
        if message.get("type") == "close":
            return None
        return await self._answer(session, message)

    async def _answer(self, session: Session, message: messages.Message) -> messages.Message:
        try:
            reply = await messages.answer(self.sessions, session, message)
        except Exception as error:
            reply = messages.error_message(error)
            self.metrics.count("errors_total", reply["data"]["code"])
            if not isinstance(error, GemError):  # those are the client's, and no news
                _log.warning("%s failed", session.environment, exc_info=error)
            return reply
        self.metrics.count("requests_total", str(message["type"]))
        return reply

    async def _send(self, socket: WebSocket, message: messages.Message) -> bool:
        """Send a message; return whether the client is still there."""
        try:
            await socket.send_text(json.dumps(message))
        except (WebSocketDisconnect, RuntimeError):
            return False
        return True


async def _hang_up(socket: WebSocket, code: int = 1000) -> None:
    with suppress(RuntimeError, WebSocketDisconnect):  # the client was faster
        await socket.close(code)


def _parameters(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RefusedError("parameters is an object of names and values.")
    return value
