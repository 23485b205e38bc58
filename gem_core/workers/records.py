"""What the pool of workers keeps of environments, their calls and their processes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeAlias

from gem_core.workers.process import Process

START_S = 120.0
"""Wall seconds in which a worker must build an environment, the import of its module included."""
Answer: TypeAlias = Callable[[str, Any], Any]
"""Answers what an environment asks: name and value -> answer."""


class Builder(NamedTuple):
    """How a worker makes an environment.

    Attributes:
        target: ``"module:function"``, imported in the worker only.
        arguments: of the function; they are pickled.
    """

    target: str
    arguments: tuple[Any, ...]

    def pickled(self) -> bytes:
        """Return it as the pool takes it."""
        return pickle.dumps(tuple(self), protocol=5)


class Handle:
    """What the pool knows of one environment; `gem_core.workers.env.WorkerEnv` has one.

    Attributes:
        builder: the pickled `Builder`.
        answer: answers what the environment asks during a call.
    """

    __slots__ = ("answer", "builder", "call", "closed", "gone", "history", "key", "worker")

    def __init__(self, builder: bytes, key: int, answer: Answer | None) -> None:
        self.builder = builder
        self.key = key
        self.answer = answer
        self.call: Call | None = None
        self.worker: Worker | None = None
        self.history: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.closed = False
        self.gone: str | None = None  # why its state is lost, until it is reset


class Call:
    """One call of an environment."""

    __slots__ = ("arguments", "ends_at", "facts", "future", "handle", "method", "named", "seconds")

    def __init__(
        self,
        handle: Handle,
        method: str,
        arguments: tuple[Any, ...],
        named: dict[str, Any],
        seconds: float,
    ) -> None:
        self.handle = handle
        self.method = method
        self.arguments = arguments
        self.named = named
        self.seconds = seconds
        self.future: Future[tuple[Any, dict[str, Any] | None]] = Future()
        self.ends_at: float | None = None  # None while it waits in the worker


class Worker:
    """A process, its environments and the calls that it has not answered."""

    def __init__(self) -> None:
        self.process = Process()
        self.handles: dict[int, Handle] = {}
        self.calls: dict[int, Call] = {}
        self.started_at: float | None = None

    def deadlines(self) -> Iterator[float]:
        """Yield when its calls must be done, and until it is ready, when it must be."""
        if self.started_at is not None and not self.process.ready:
            yield self.started_at + START_S
        for call in self.calls.values():
            if call.ends_at is not None:
                yield call.ends_at
