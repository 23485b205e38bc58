"""Environments of any OpenEnv server: ``openenv:<name>``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from gem_core.env.interface import Env
from gem_core.errors import EnvResultError, EpisodeStateError
from gem_core.execution.server_client.socket_client import SocketClient

if TYPE_CHECKING:
    from gem_core.env.interface import Info, ResetResult, StepResult

_SEED_BITS = 31


class OpenEnvEnv(Env):
    """An environment of an OpenEnv server: ``make("openenv:echo", url="http://127.0.0.1:8000")``.

    OpenEnv's servers take a seed, but do not promise that it decides anything: it is measured at
    the first reset by a second one, and ``info["bridge"]["seeds"]`` says what was found. They do
    not give their state, and ``done`` does not tell an end from a cut: it is ``terminated``.

    Args:
        name: what records call it; the server has one environment.
        url: the server.
        action: the field of an action that gets the agent's text.
        observation: the field of an observation that is shown. Unset: the only field that is text,
            or the whole observation as JSON.
        success_reward: the reward of the last step from which on an episode is a success, where the
            server's metadata has no ``success``. Unset: such episodes are never successes.
        deadline_s: seconds for the answer to a call.
    """

    slow = True

    def __init__(
        self,
        name: str,
        *,
        url: str,
        action: str = "text",
        observation: str | None = None,
        success_reward: float | None = None,
        deadline_s: float = 60.0,
    ) -> None:
        self.name = name
        self.url = url
        self.action = action
        self.observation = observation
        self.success_reward = success_reward
        self.deadline_s = deadline_s
        self.seeds = "unknown"
        self._client: SocketClient | None = None
        self._next_seed: int | None = None

    def provenance(self) -> dict[str, str]:
        """Return whether seeds ``decide`` or ``do not decide``, for the record of a run.

        Where it is not measured yet, an episode is started.
        """
        if self.seeds == "unknown":
            self.reset(seed=0)
        return {"seeds": self.seeds}

    def get_state(self) -> dict[str, Any]:
        """Raise: an OpenEnv server does not give its state.

        Raises:
            EpisodeStateError: always.
        """
        raise EpisodeStateError("An OpenEnv server does not give the state of its environment.")

    def _seed(self, seed: int) -> None:
        super()._seed(seed)
        self._next_seed = seed if 0 <= seed < 1 << _SEED_BITS else self.rng.getrandbits(_SEED_BITS)

    def _reset(self, options: dict[str, Any] | None) -> ResetResult:
        seed = self._next_seed
        self._next_seed = None
        if seed is None:
            seed = self.rng.getrandbits(_SEED_BITS)
        if self._client is None:
            self._client = SocketClient(self.url, "", self.deadline_s)
        data = {**(options or {}), "seed": seed}
        answer = self._client.request("reset", data)
        if self.seeds == "unknown":
            again = self._client.request("reset", data)
            same = self._text(answer["observation"]) == self._text(again["observation"])
            self.seeds = "decide" if same else "do not decide"
            answer = again
        if answer.get("done"):
            raise EnvResultError(f"{self.url}: the episode was over after its reset.")
        bridge = {"package": f"openenv server {self.url}", "name": self.name, "seeds": self.seeds}
        return self._text(answer["observation"]), {**_metadata(answer), "bridge": bridge}

    def _step(self, action: str) -> StepResult:
        assert self._client is not None
        answer = self._client.request("step", {self.action: action})
        info = _metadata(answer)
        reward = float(answer.get("reward") or 0.0)
        done = bool(answer.get("done"))
        if done:
            known = info.get("success")
            reached = self.success_reward is not None and reward >= self.success_reward
            info["success"] = known if isinstance(known, bool) else reached
        return self._text(answer["observation"]), reward, done, False, info

    def _close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _text(self, observation: dict[str, Any]) -> str:
        if self.observation is not None:
            if self.observation not in observation:
                fields = ", ".join(observation)
                raise EnvResultError(f"The observation has {fields}, but no {self.observation!r}.")
            return str(observation[self.observation])
        shown = {key: value for key, value in observation.items() if key != "metadata"}
        texts = [value for value in shown.values() if isinstance(value, str)]
        return texts[0] if len(texts) == 1 else json.dumps(shown, ensure_ascii=False)


def _metadata(answer: dict[str, Any]) -> Info:
    return dict(answer.get("metadata") or {})
