"""`WorkerEnv`: an environment that lives in a worker process."""

from __future__ import annotations

from random import Random
from typing import Any

from gem_core.env.remote.env import RemoteCallsEnv
from gem_core.env.remote.outcome import Outcome
from gem_core.errors import EpisodeStateError
from gem_core.execution.workers.pool import WorkerPool
from gem_core.execution.workers.records import Answer

DEADLINE_S = 60.0
"""Wall seconds of one call, where nothing else is set."""


class WorkerEnv(RemoteCallsEnv):
    """An environment whose calls are made in a worker process of a pool.

    The worker builds the environment at the first call.

    Args:
        pool: the workers.
        builder: how a worker makes the environment, see
            `gem_core.execution.workers.records.Builder.pack`.
        deadline_s: wall seconds of one call.
        answer: ``answer(name, value)`` is what the environment gets from
            `gem_core.execution.workers.child.ask`; it is called in a thread of this process.
    """

    def __init__(
        self,
        pool: WorkerPool,
        builder: bytes,
        *,
        deadline_s: float = DEADLINE_S,
        answer: Answer | None = None,
    ) -> None:
        super().__init__(deadline_s)
        self._pool = pool
        self._handle = pool.handle(builder, answer)

    @property
    def pool(self) -> WorkerPool:
        """The workers."""
        return self._pool

    def submit(self, method: str, *arguments: Any, **named: Any) -> Outcome[Any]:
        """See `RemoteCallsEnv.submit`; `WorkerDiedError` is raised if the worker ended."""
        if method == "close":
            self._closed = True
            return self.pool.close_env(self._handle, self.deadline_s)
        if self._closed:
            raise EpisodeStateError("The environment is closed: make a new one.")
        return self.pool.submit(
            self._handle, method, *arguments, deadline_s=self.deadline_s, **named
        )

    def receive(self, outcome: Outcome[Any]) -> Any:
        """See `RemoteCallsEnv.receive`."""
        result, facts = outcome.result()
        if facts is not None:
            self.spec = facts["spec"] or self.spec
            self.version = facts["version"]
            self.functions = facts["functions"]
        return result

    def random_action(self, rng: Random) -> str:
        """See `Env.random_action`; ``rng`` continues as if the environment were local."""
        action, state = self._call("random_action", rng)
        rng.setstate(state)
        return str(action)

    def __del__(self) -> None:
        if "_handle" in self.__dict__ and not self._closed:
            self.pool.drop(self._handle)
