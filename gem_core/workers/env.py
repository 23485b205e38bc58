"""`WorkerEnv`: an environment that lives in a worker process."""

from __future__ import annotations

from random import Random
from typing import Any

from gem_core.core import Env
from gem_core.env_spec import EnvSpec
from gem_core.errors import EpisodeStateError
from gem_core.workers.outcome import Outcome
from gem_core.workers.pool import WorkerPool
from gem_core.workers.records import Answer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gem_core.core import ResetResult, State, StepResult

DEADLINE_S = 60.0
"""Wall seconds of one call, where nothing else is set."""


class WorkerEnv(Env):
    """An environment whose calls are made in a worker process of a pool.

    It is an `Env` as any other, and its methods wait for the worker. `submit` does not wait, which
    the loops of `gem_core.episodes.rollout` use. The worker builds the environment at the first
    call.

    Args:
        pool: the workers.
        builder: how a worker makes the environment, see `gem_core.workers.records.Builder.pickled`.
        deadline_s: wall seconds of one call.
        answer: ``answer(name, value)`` is what the environment gets from
            `gem_core.workers.child.ask`; it is called in a thread of this process.
        spec: what is shown as `spec` until the first reset.

    Attributes:
        pool: the workers.
        deadline_s: wall seconds of one call.
        functions: the tools as chat templates take them, after the first reset.
    """

    slow = True

    def __init__(
        self,
        pool: WorkerPool,
        builder: bytes,
        *,
        deadline_s: float = DEADLINE_S,
        answer: Answer | None = None,
        spec: EnvSpec | None = None,
    ) -> None:
        self.pool = pool
        self._handle = pool.handle(builder, answer)
        self._closed = False
        self.deadline_s = deadline_s
        self.functions: list[dict[str, Any]] | None = None
        self.spec = spec

    def submit(self, method: str, *arguments: Any, **named: Any) -> Outcome[Any]:
        """Call a method in the worker without waiting for it; one call at a time.

        Returns:
            What `receive` takes. It raises `EnvDeadlineError` after `deadline_s`,
            `WorkerDiedError` if the worker ended, or the environment's exception.

        Raises:
            EpisodeStateError: the environment was closed.
            WorkerPoolError: the pool cannot be used any more.
        """
        if method == "close":
            self._closed = True
            return self.pool.close_env(self._handle, self.deadline_s)
        if self._closed:
            raise EpisodeStateError("The environment is closed: make a new one.")
        return self.pool.submit(
            self._handle, method, *arguments, deadline_s=self.deadline_s, **named
        )

    def receive(self, outcome: Outcome[Any]) -> Any:
        """Wait for a call of `submit`; return what the method returned."""
        result, facts = outcome.result()
        if facts is not None:
            self.spec = facts["spec"] or self.spec
            self.version = facts["version"]
            self.functions = facts["functions"]
        return result

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
        """Close the environment in its worker."""
        if not self._closed:
            self.receive(self.submit("close"))

    def get_state(self) -> State:
        """See `Env.get_state`; the state is that of the environment without a worker."""
        state: State = self._call("get_state")
        return state

    def set_state(self, state: State) -> None:
        """See `Env.set_state`."""
        self._call("set_state", state)

    def random_action(self, rng: Random) -> str:
        """See `Env.random_action`; ``rng`` continues as if the environment were here."""
        action, state = self._call("random_action", rng)
        rng.setstate(state)
        return str(action)

    def _call(self, method: str, *arguments: Any, **named: Any) -> Any:
        return self.receive(self.submit(method, *arguments, **named))

    def __del__(self) -> None:
        if not self.__dict__.get("_closed", True):
            self.pool.drop(self._handle)

    def _reset(self, options: dict[str, Any] | None) -> ResetResult:
        raise NotImplementedError("The worker's environment has it.")

    def _step(self, action: str) -> StepResult:
        raise NotImplementedError("The worker's environment has it.")
