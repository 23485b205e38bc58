"""The environment servers of a run: ``workers.backend = "server"`` of the recipe."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

from gem_core.env.registration import spec
from gem_core.env.spec import EnvSpec
from gem_core.errors import DataError, GemError, MissingDependencyError, RecipeError
from gem_core.execution.server_client.opening import Wanted
from gem_core.execution.server_client.session_env import SessionEnv
from gem_core.execution.server_client.session_pool import SessionPool
from gem_core.runs.recipe.tables import EnvConfig, WorkersConfig
from gem_core.runs.recipe.worker_checks import server_addresses

Facts = dict[str, Any]
"""What a server says of an environment, see `gem_server.messages.facts`."""


def new_session_pool(workers: WorkersConfig) -> SessionPool:
    """Return the sessions of a process on the servers of its run; none is open yet."""
    return SessionPool(server_addresses(workers), restart=workers.restart)


class Accept:
    """Takes what a server says of its environment, once for each of its answers that differ.

    ``compare`` raises `DataError` if the run recorded another environment; ``key`` is that of the
    table in the recipe (``env.0``), for messages.
    """

    def __init__(
        self, config: EnvConfig, key: str, compare: Callable[[EnvConfig, EnvSpec], None]
    ) -> None:
        self.config = config
        self.key = key
        self.compare = compare
        self._accepted: dict[tuple[str | None, str | None], EnvSpec] = {}

    def __call__(self, facts: Facts) -> EnvSpec:
        """Return what the environment is.

        Raises:
            DataError: it is another than the recipe asks for, or than the run recorded.
        """
        said = (facts.get("fingerprint"), facts.get("data_revision"))
        if said not in self._accepted:
            made = served_spec(self.config, self.key, facts)
            self.compare(self.config, made)
            self._accepted[said] = made
        return self._accepted[said]


def served_spec(config: EnvConfig, key: str, facts: Facts) -> EnvSpec:
    """Return what a server's environment is, if it is the one of the recipe.

    Id, parameters and the version of the class must be those of this process; the data are those
    that the server says, and are recorded.

    Raises:
        DataError: it is another one.
    """
    where = f"{key}: {config.id}: the environment server"
    if "sample" not in facts:
        raise DataError(f"{where} does not say what it plays: update gem-core there.")
    base = spec(config.id).replace(**config.kwargs)
    revision = facts["data_revision"]
    made = EnvSpec(base.id, base.entry_point, base.kwargs, revision)
    if made.fingerprint() != facts["fingerprint"] or base.data_revision not in (None, revision):
        raise DataError(
            f"{where} has another environment under this id (fingerprint {facts['fingerprint']}, "
            f"here {made.fingerprint()}): install the same gem-core there as here, and register "
            "the same environment under the id."
        )
    if facts["images"]:
        raise DataError(
            f"{where} has an environment with images, and a run plays text only: choose another "
            f"environment, or play it without: --set '{key}.kwargs.images=drop'."
        )
    if facts["sample"] and base.kwargs.get("dataset") != "sample":
        raise DataError(
            f"{where} has only the small built-in sample of its data: download the data there, or "
            f"ask for the sample: --set '{key}.kwargs.dataset=sample'."
        )
    return made


def wanted(config: EnvConfig, key: str, compare: Callable[[EnvConfig, EnvSpec], None]) -> Wanted:
    """Return what a server is asked for, for an environment of a run; arguments as of `Accept`."""
    return Wanted(config.id, dict(config.kwargs), Accept(config, key, compare))


def described_there(
    workers: WorkersConfig, wanted: Wanted, key: str, deadline_s: float | None
) -> tuple[EnvSpec, Facts]:
    """Start an episode on every server of a run; return what its environment is.

    Raises:
        DataError: a server has another environment than the recipe, the run or another server.
        RecipeError: a server cannot be reached, refuses the token or does not serve the id.
    """
    deadline = workers.deadline_s if deadline_s is None else deadline_s
    places = server_addresses(workers)
    answers = [_asked(address, wanted, key, deadline) for address in places]
    for address, (_, facts) in zip(places, answers, strict=True):
        if facts != answers[0][1]:
            raise DataError(
                f"{key}: {wanted.environment}: the servers of workers.address differ: {places[0]} "
                f"says {answers[0][1]}, {address} says {facts}: put the same data in place."
            )
    return answers[0]


def _asked(address: str, wanted: Wanted, key: str, deadline_s: float) -> tuple[EnvSpec, Facts]:
    said: list[Facts] = []

    def note(facts: Facts) -> Any:
        said.append(facts)
        return wanted.accept(facts)

    with closing(SessionPool([address])) as pool:
        env = SessionEnv(pool, wanted._replace(accept=note), deadline_s=deadline_s)
        try:
            env.reset(seed=0)
        except (DataError, MissingDependencyError):
            raise
        except Exception as error:
            raise RecipeError(f"{key}: {wanted.environment}: {_told(error)}") from error
        env.close()
    made: EnvSpec = wanted.accept(said[-1])
    return made, said[-1]


def _told(error: Exception) -> str:
    """Return an error of the first call as the end of a message."""
    known = isinstance(error, GemError)
    text = str(error) if known else f"{type(error).__name__}: {error}"
    lost = getattr(error, "code", "") == "UNREACHABLE"
    hint = " Start it (gem-core serve), or correct workers.address." if lost else ""
    return f"{text.rstrip('.')}.{hint}"
