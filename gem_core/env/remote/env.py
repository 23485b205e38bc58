"""`RemoteCallsEnv`: an environment that lives elsewhere, whose calls need not be waited for."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from gem_core.env.interface import Env
from gem_core.env.remote.outcome import Outcome

if TYPE_CHECKING:
    from gem_core.env.interface import ResetResult, State, StepResult


class CallPool(Protocol):
    """Where environments live; see `gem_core.execution.workers.pool.WorkerPool`."""

    def together(self) -> AbstractContextManager[None]:
        """Send the calls that are submitted inside at its end."""


class RemoteCallsEnv(Env):
    """An environment in another process.

    It is an `Env` as any other, and its methods wait for the answer. `submit` does not wait, which
    the loops of `gem_core.episodes.rollout` use: they need no thread for such an environment.

    Attributes:
        deadline_s: wall seconds of one call.
        functions: the tools as chat templates take them, after the first reset.
    """

    slow = True

    def __init__(self, deadline_s: float) -> None:
        self.deadline_s = deadline_s
        self.functions: list[dict[str, Any]] | None = None
        self._closed = False

    @property
    @abstractmethod
    def pool(self) -> CallPool:
        """Where it lives, with others."""

    @abstractmethod
    def submit(self, method: str, *arguments: Any, **named: Any) -> Outcome[Any]:
        """Call a method without waiting for it; one call at a time.

        Returns:
            What `receive` takes. It raises `EnvDeadlineError` after `deadline_s`, the environment's
            exception, or what became of the process in which it lives.

        Raises:
            EpisodeStateError: the environment was closed.
            WorkerPoolError: the pool cannot be used any more.
        """

    @abstractmethod
    def receive(self, outcome: Outcome[Any]) -> Any:
        """Wait for a call of `submit`; return what the method returned."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> ResetResult:
        """See `Env.reset`."""
        result: ResetResult = self._call("reset", seed=seed, options=options)
        return result

    def step(self, action: str) -> StepResult:
        """See `Env.step`."""
        result: StepResult = self._call("step", action)
        return result

    def close(self) -> None:
        """Close the environment where it lives."""
        if not self._closed:
            self.receive(self.submit("close"))

    def get_state(self) -> State:
        """See `Env.get_state`; the state is that of the environment itself."""
        state: State = self._call("get_state")
        return state

    def set_state(self, state: State) -> None:
        """See `Env.set_state`."""
        self._call("set_state", state)

    def _call(self, method: str, *arguments: Any, **named: Any) -> Any:
        return self.receive(self.submit(method, *arguments, **named))

    def _reset(self, options: dict[str, Any] | None) -> ResetResult:
        raise NotImplementedError("The environment itself has it.")

    def _step(self, action: str) -> StepResult:
        raise NotImplementedError("The environment itself has it.")
