"""The calls that play an episode: each made here, or begun and ended where the environment lives.

`MachineCall.run` does what the method of `gem_core.episodes.machine.EpisodeMachine` does, and waits
for the environment. Where that lives in a worker process or behind a server, nothing need wait:
`MachineCall.submit` begins the same call there, `MachineCall.receive` ends it.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from gem_core.env.remote.env import RemoteCallsEnv
from gem_core.episodes.endings import record_close_error
from gem_core.errors import EpisodeStateError

if TYPE_CHECKING:
    from gem_core.env.remote.outcome import Outcome
    from gem_core.episodes.data import Completion
    from gem_core.episodes.machine import EpisodeMachine


class MachineCall(ABC):
    """One call of a machine, which calls its environment; see the module docstring."""

    __slots__ = ("_submitted", "machine")

    def __init__(self, machine: EpisodeMachine) -> None:
        self.machine = machine
        self._submitted: float | None = None  # when it was begun elsewhere

    @property
    def remote_env(self) -> RemoteCallsEnv | None:
        """The environment, if it lives in a worker process or behind a server."""
        env = self.machine.env
        return env if isinstance(env, RemoteCallsEnv) else None

    @abstractmethod
    def run(self) -> list[int] | None:
        """Make the call here and now; return the next prompt, ``None`` at the end."""

    @abstractmethod
    def submit(self) -> Outcome[Any] | None:
        """Begin the call where the environment lives; ``None``: there is nothing to call, and
        the machine's ``ready`` is the next prompt.

        Raises:
            EpisodeStateError: the environment lives in this process.
        """

    def receive(self, outcome: Outcome[Any]) -> list[int] | None:
        """End what `submit` began, with what was answered; return what `run` returns.

        The environment is not closed at the end of the episode: that is a `CloseCall`.
        """
        env = self._require_remote_env()
        return self.machine.resume(lambda: env.receive(outcome))

    def count_seconds(self) -> None:
        """Add the time since `submit` to the episode's seconds in its environment."""
        if self._submitted is not None:
            self.machine.add_seconds("env", time.perf_counter() - self._submitted)
            self._submitted = None

    def _submit(self, env: RemoteCallsEnv, method: str, *arguments: Any, **named: Any) -> Any:
        self._submitted = time.perf_counter()
        return env.submit(method, *arguments, **named)

    def _require_remote_env(self) -> RemoteCallsEnv:
        env = self.remote_env
        if env is None:
            raise EpisodeStateError(
                f"{self.machine.env_id} lives in this process: call start() and feed()."
            )
        return env


class StartCall(MachineCall):
    """The call that begins an episode."""

    __slots__ = ()

    def run(self) -> list[int] | None:
        """See `MachineCall.run`."""
        return self.machine.start()

    def submit(self) -> Outcome[Any] | None:
        """See `MachineCall.submit`."""
        env = self._require_remote_env()
        began = self.machine.begin()
        return self._submit(env, "reset", seed=self.machine.seed) if began else None


class FeedCall(MachineCall):
    """The call that plays a completion."""

    __slots__ = ("completion",)

    def __init__(self, machine: EpisodeMachine, completion: Completion) -> None:
        super().__init__(machine)
        self.completion = completion

    def run(self) -> list[int] | None:
        """See `MachineCall.run`."""
        return self.machine.feed(self.completion)

    def submit(self) -> Outcome[Any] | None:
        """See `MachineCall.submit`; it raises what `EpisodeMachine.feed` raises, too."""
        env = self._require_remote_env()
        action = self.machine.accept(self.completion)
        return None if action is None else self._submit(env, "step", action)


class CloseCall(MachineCall):
    """The call that closes the environment of an episode that is over."""

    __slots__ = ()

    def run(self) -> None:
        """See `MachineCall.run`; no prompt follows."""
        self.machine.close()

    def submit(self) -> Outcome[Any] | None:
        """See `MachineCall.submit`."""
        env = self._require_remote_env()
        return env.submit("close") if self.machine.claim_close() else None

    def receive(self, outcome: Outcome[Any]) -> None:
        """See `MachineCall.receive`; an error is recorded in the episode."""
        error = outcome.exception()
        if error is not None:
            record_close_error(self.machine.episode, error)
