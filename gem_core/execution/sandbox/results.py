"""What a call may use, and what it returns."""

from __future__ import annotations

from typing import NamedTuple

from gem_core.errors import GemError


class SandboxError(GemError, RuntimeError):
    """A sandbox cannot be started, or cannot do what was asked of it."""


class SandboxUnavailable(SandboxError):
    """This machine does not offer a level; the message says why and what to do."""


class SandboxLimits(NamedTuple):
    """What one call may use. Exceeding a limit ends the call, or fails the operation in it.

    Attributes:
        seconds: wall seconds.
        cpu_s: CPU seconds of a process, rounded up to whole ones. In a session only the wall
            seconds limit the CPU time strictly.
        memory_mb: address space of a process.
        threads: threads, and processes where they are allowed at all. Without a user of its own
            (see `Sandbox.own_user`) a program may have some hundreds more.
        file_mb: size of a file that it writes.
        disk_mb: all its files together, also those that it has removed but holds open or mapped;
            at most 2,000 files. At level *strict* the kernel holds it; else they are looked at
            after 10 ms and then every 20 ms.
        output_kb: what it prints.
    """

    seconds: float = 5.0
    cpu_s: float = 5.0
    memory_mb: float = 512
    threads: int = 32
    file_mb: float = 16
    disk_mb: float = 32
    output_kb: float = 256


KINDS = {
    "error": "the program raised an exception or exited with a status other than 0",
    "timeout": "it reached the wall deadline",
    "cpu_limit": "it reached the limit of CPU time",
    "output_limit": "it printed more than is allowed; what was allowed is returned",
    "disk_limit": "it wrote more than is allowed, or more files",
    "killed": "a signal ended it, as when memory runs out",
    "session_over": "an earlier call of the session ended its interpreter",
    "unavailable": "no process could be started for it",
    "sandbox_died": "the server did not answer; it is started again for the next call",
}  # fmt: skip
"""Every ``error`` of a `SandboxResult`, and what it means."""


class SandboxResult(NamedTuple):
    """The result of a call.

    Attributes:
        output: what the program printed, standard output and error together.
        error: why it failed, one of `KINDS`; ``None``: it did not.
        seconds: wall seconds that it ran.
        truncated: whether there was more output than is allowed.
        level: the level of isolation under which it ran, one of
            `gem_core.execution.sandbox.LEVELS`.
    """

    output: str
    error: str | None
    seconds: float
    truncated: bool
    level: str

    @property
    def ok(self) -> bool:
        """Whether the program ran to its end without an error."""
        return self.error is None
