"""Environments of a gem-core server: ``remote:<id>``."""

from __future__ import annotations

from contextlib import closing
from random import Random
from typing import TYPE_CHECKING, Any

from gem_core.env.interface import Env
from gem_core.execution.server_client.connecting import session_path, session_query
from gem_core.execution.server_client.socket_client import SocketClient

if TYPE_CHECKING:
    from gem_core.env.interface import ResetResult, State, StepResult


class RemoteEnv(Env):
    """An environment that a gem-core server plays: ``make("remote:game:Sudoku-v0-easy", url=...)``.

    The same seed gives the same episode as the environment here. Every environment has a connection
    and a session of its own, opened at the first call. The server's token is in the variable
    ``GEM_CORE_SERVER_TOKEN``, never in a recipe.

    Args:
        name: the id of the environment.
        url: the server: ``http://127.0.0.1:8000``.
        parameters: of the environment, if the server allows them.
        deadline_s: seconds for the answer to a call.
    """

    slow = True

    def __init__(
        self,
        name: str,
        *,
        url: str,
        parameters: dict[str, Any] | None = None,
        deadline_s: float = 60.0,
    ) -> None:
        self.name = name
        self.url = url
        self.parameters = dict(parameters or {})
        self.deadline_s = deadline_s
        self._client: SocketClient | None = None

    def provenance(self) -> dict[str, str]:
        """Return what the server says of its environment, for the record of a run.

        ``server_fingerprint`` and ``server_data`` are fingerprint and data revision of the
        environment there, asked for in a session of its own; a server whose environment has no
        specification gives neither.
        """
        with closing(self._client_of_a_session()) as client:
            known = client.request("reset", {"seed": 0})["metadata"]
        names = {"fingerprint": "server_fingerprint", "data_revision": "server_data"}
        return {name: known[key] for key, name in names.items() if known.get(key) is not None}

    def get_state(self) -> State:
        """See `Env.get_state`; the state is that of the environment without a server."""
        return self._connect().request("save", {})

    def set_state(self, state: State) -> None:
        """See `Env.set_state`."""
        self._connect().request("load", dict(state))
        self._status = int(_innermost(state)["status"])

    def random_action(self, rng: Random) -> str:
        """Return a random action of the same environment, made here if it can be."""
        if self._local is None:
            from gem_core.env.registration import make_from_data

            self._local = make_from_data(self.name, self.parameters)
        self._local.set_state(self.get_state())
        return self._local.random_action(rng)

    def _seed(self, seed: int) -> None:
        super()._seed(seed)
        self._next_seed = int(seed)

    def _reset(self, options: dict[str, Any] | None) -> ResetResult:
        seed = self._next_seed
        self._next_seed = None
        # Without a seed, the environment continues with its own generator, on the server.
        data: dict[str, Any] = {"seed": seed}
        if options is not None:
            data["options"] = options
        result = self._connect().request("reset", data)["observation"]
        return result["text"], result["info"]

    def _step(self, action: str) -> StepResult:
        answer = self._connect().request("step", {"text": action})
        result = answer["observation"]
        reward = float(answer["reward"])
        return result["text"], reward, result["terminated"], result["truncated"], result["info"]

    def _close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._local is not None:
            self._local.close()

    def _connect(self) -> SocketClient:
        if self._client is None:
            self._client = self._client_of_a_session()
        return self._client

    def _client_of_a_session(self) -> SocketClient:
        path = session_path(self.url, self.name)
        return SocketClient(path, session_query(self.parameters), self.deadline_s)

    _next_seed: int | None = None
    _local: Env | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = {
            "url": self.url,
            "parameters": self.parameters,
            "deadline_s": self.deadline_s,
        }
        state = self.get_state() if self._client is not None else None
        return _rebuilt, (self.name, arguments, self.spec, state)


def _rebuilt(name: str, arguments: dict[str, Any], own: Any, state: State | None) -> RemoteEnv:
    env = RemoteEnv(name, **arguments)
    env.spec = own
    if state is not None:
        env.set_state(state)
    return env


def _innermost(state: State) -> State:
    while "inner" in state:
        state = state["inner"]
    return state
