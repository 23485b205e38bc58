"""What the pool of workers keeps of environments, their calls and their processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

from gem_core.env.interface import Env
from gem_core.env.remote.outcome import Outcome
from gem_core.execution.workers.by_value import pack_by_value
from gem_core.execution.workers.channel import Channel

START_S = 120.0
"""Wall seconds in which a worker must build an environment, the import of its module included."""
Answer: TypeAlias = Callable[[str, Any], Any]
"""Answers what an environment asks: name and value -> answer."""


class Builder(NamedTuple):
    """How a worker makes an environment.

    Attributes:
        target: ``"module:function"``, imported in the worker only; or a function, a lambda or a
            class of this process.
        arguments: of the function; they are pickled.
        definition: of the environment's class, where the script has it, see
            `gem_core.execution.workers.by_value.pack_definition`.
    """

    target: str | Callable[..., Env]
    arguments: tuple[Any, ...]
    definition: bytes = b""

    def pack(self) -> bytes:
        """Return it as the pool takes it."""
        return pack_by_value(tuple(self))


class BuilderRecord:
    """What is known of the environments of one builder.

    Attributes:
        blocks: whether their calls may block, so that a worker runs many of them at a time.
        first_s: seconds that a worker needs for the first call of one, a moving mean.
    """

    __slots__ = ("blocks", "first_s")

    def __init__(self, blocks: bool, first_s: float) -> None:
        self.blocks = blocks
        self.first_s = first_s

    def note_time(self, seconds: float) -> None:
        """Note how long another first call took."""
        self.first_s += 0.2 * (seconds - self.first_s)


class Handle:
    """What the pool knows of one environment; `gem_core.execution.workers.env.WorkerEnv` has one.

    Attributes:
        builder: the pickled `Builder`.
        answer: answers what the environment asks during a call.
    """

    __slots__ = ("answer", "builder", "call", "closed", "gone", "history", "key", "worker")

    def __init__(self, builder: bytes, key: int, answer: Answer | None) -> None:
        self.builder = builder
        self.key = key
        self.answer = answer
        self.call: WorkerCall | None = None
        self.worker: Worker | None = None
        self.history: list[tuple[str, bytes]] = []  # methods and their pickled arguments
        self.closed = False
        self.gone: str | None = None  # why its state is lost, until it is reset

    def lose(self, why: str) -> None:
        """Note that its state is lost."""
        self.worker = None
        self.history = []
        self.gone = why


class WorkerCall:
    """One call of an environment, its arguments pickled, for ``seconds`` of wall time.

    Attributes:
        future: what the method returns, and after a reset what is known of the environment.
        given_at: when its worker got it, in ``time.monotonic()``.
        ends_at: when it must be done; ``None`` while it waits in the worker.
        expected_s: seconds that it is thought to take, which its worker cannot spend on others.
    """

    __slots__ = (
        "arguments",
        "ends_at",
        "expected_s",
        "future",
        "given_at",
        "handle",
        "method",
        "seconds",
    )

    def __init__(self, handle: Handle, method: str, arguments: bytes, seconds: float) -> None:
        self.handle = handle
        self.method = method
        self.arguments = arguments
        self.seconds = seconds
        self.future: Outcome[tuple[Any, dict[str, Any] | None]] = Outcome()
        self.given_at = 0.0
        self.ends_at: float | None = None
        self.expected_s = 0.0

    def begin(self, since: float, *, builds: bool) -> None:
        """Note when the worker began it, or the building of its environment."""
        self.ends_at = since + (max(START_S, self.seconds) if builds else self.seconds)


class Worker:
    """A process, its environments and the calls that it has not answered."""

    def __init__(self, process: Channel) -> None:
        self.process = process
        self.handles: dict[int, Handle] = {}
        self.calls: dict[int, WorkerCall] = {}
        self.started_at: float | None = None
        self.expected_s = 0.0  # of its calls together

    def look(self) -> None:
        """Find out which of its calls have begun, where that is not told by messages."""
        marks = self.process.marks
        if marks is None:
            return
        running = marks.running()
        for number, call in self.calls.items():
            call.ends_at = None
            since, builds = running.get(number, (0.0, False))
            if since >= call.given_at:
                call.begin(since, builds=builds)

    def starts_too_long(self, now: float) -> bool:
        """Return whether it should have been ready by now."""
        starting = self.started_at is not None and not self.process.ready
        return starting and now >= (self.started_at or now) + START_S

    def next_looks(self, now: float) -> Iterator[float]:
        """Yield when deadlines may pass, after `look`: none passes earlier."""
        if self.started_at is not None and not self.process.ready:
            yield self.started_at + START_S
        told = self.process.marks is None
        for call in self.calls.values():
            if call.ends_at is not None:
                yield call.ends_at
            if not told:  # it may begin now
                yield now + call.seconds
