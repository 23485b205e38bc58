"""What clients of a server may use, and what a refused request is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gem_core.errors import GemError


class ServerLimits(NamedTuple):
    """What clients of a server may use.

    Attributes:
        environments: shell-style patterns of the ids that are served. Ids of other packages
            (``gem:...``) have to match a pattern that begins with their namespace.
        sessions: sessions at once.
        idle_s: seconds without a message after which a session is closed.
        call_s: wall seconds of a call of an environment.
        message_bytes: size of a message.
        threads: calls of environments that run at the same time.
        connections: connections at once, those without a session included.
        request_s: seconds in which a client must send the head of a request, its body, or a
            message that it has begun, and in which it must read an answer.
        memory_mb: memory of the server's process from which on no session is opened.
        parameters: whether clients may set the parameters that environments declare for them.
        allowed: what the operator allows besides, as (id, parameters): a client may set just these
            values of the environment.
    """

    environments: tuple[str, ...] = ("*",)
    sessions: int = 2048
    idle_s: float = 1800.0
    call_s: float = 60.0
    message_bytes: int = 1 << 20
    threads: int = 64
    connections: int = 2304
    request_s: float = 20.0
    memory_mb: float = 4096.0
    parameters: bool = False
    allowed: tuple[tuple[str, Mapping[str, Any]], ...] = ()


class RefusedError(GemError, ValueError):
    """A request that was refused; the message tells the client why.

    Attributes:
        code: OpenEnv's name of the reason.
        status: the one of HTTP.
        deadline_s: how long the call was allowed to take, where it took too long.
    """

    def __init__(
        self,
        message: str,
        code: str = "VALIDATION_ERROR",
        status: int = 400,
        *,
        deadline_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.deadline_s = deadline_s
