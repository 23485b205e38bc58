"""`SyncVectorEnv`: environments that are called one after another in the caller's thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import compress
from typing import Any

import numpy as np

from gem_core.env.interface import Env, end_episode
from gem_core.execution.vector.env import (
    Autoreset,
    One,
    Ready,
    Seeds,
    Steps,
    VectorEnv,
    close_each,
    make_failed_step,
    stack,
    with_final,
)

try:
    from operator import call  # Python 3.11
except ImportError:

    def call(function: Any, *arguments: Any) -> Any:  # type: ignore[misc]
        """Call a function."""
        return function(*arguments)


def _step_of(env: Env) -> Callable[[str], One]:
    """Return what steps an environment: without the checks of `Env.step`, which are made here."""
    return env._step if type(env).step is Env.step else env.step


def _reset_of(env: Env) -> Callable[[], tuple[str, dict[str, Any]]]:
    """Return what begins the next episode of an environment that is in one; see `_step_of`."""
    own = type(env).reset is Env.reset and type(env).step is Env.step
    return partial(env._reset, None) if own else env.reset


class SyncVectorEnv(VectorEnv):
    """The fastest vector for environments that do not wait for anything."""

    def __init__(self, envs: Sequence[Env], ids: Sequence[str], autoreset: Autoreset) -> None:
        super().__init__(ids, autoreset)
        self.envs = list(envs)
        self._indices = range(self.num_envs)
        self._own = [_step_of(env) for env in self.envs]
        self._resets = [_reset_of(env) for env in self.envs]
        self._steps = [self._beginner(index) for index in range(self.num_envs)]
        self._sent: list[tuple[int, One]] = []

    def reset(
        self,
        *,
        seed: Seeds = None,
        options: dict[str, Any] | None = None,
        indices: Iterable[int] | None = None,
    ) -> tuple[list[str], list[dict[str, Any]]]:
        """See `VectorEnv.reset`."""
        chosen = self._choose(indices)
        obs: list[str] = []
        infos: list[dict[str, Any]] = []
        for index, one in zip(chosen, self._seeds(seed, chosen), strict=True):
            result = self._begin(index, seed=one, options=options)
            obs.append(result[0])
            infos.append(result[4])
        return obs, infos

    def step(self, actions: Sequence[str], indices: Iterable[int] | None = None) -> Steps:
        """See `VectorEnv.step`."""
        if indices is not None or not self._all_can_step(actions):
            return self._step_some(actions, indices)
        results: list[One] = []
        try:
            # After an exception `results` has what came before it.
            results.extend(map(call, self._steps, actions))
        except BaseException as error:
            results = self._continue(results, error, actions)
        obs, rewards, terminated, truncated, infos = zip(*results, strict=False)
        size = self.num_envs
        values = np.fromiter(rewards, np.float64, size)
        cut = any(truncated)
        if not (cut or any(terminated)):
            return Steps(obs, values, np.zeros(size, bool), np.zeros(size, bool), infos)
        ends = np.fromiter(terminated, bool, size)
        cuts = np.fromiter(truncated, bool, size) if cut else np.zeros(size, bool)
        over = list(compress(self._indices, terminated))
        if cut:
            over = sorted({*over, *compress(self._indices, truncated)})
        texts, dicts = list(obs), list(infos)
        if self.autoreset == "same_step":
            self._begin_next(over, results, texts, dicts)
        else:
            for index in over:
                self._handle_end(index, results[index])
        return Steps(texts, values, ends, cuts, dicts)

    def _begin_next(
        self,
        over: Sequence[int],
        results: Sequence[One],
        texts: list[str],
        infos: list[dict[str, Any]],
    ) -> None:
        """Begin the next episodes in the step that ended the last ones; change texts and infos."""
        for index in over:
            if index in self._over:  # its reset failed
                continue
            try:
                texts[index], info = self._resets[index]()
            except BaseException as error:
                texts[index], _, _, _, info = make_failed_step(error)
                self._stop(index)
            last = results[index]
            infos[index] = {**info, "final_obs": last[0], "final_info": last[4]}

    def send(self, actions: Sequence[str], indices: Iterable[int] | None = None) -> None:
        """See `VectorEnv.send`; the steps are made at once."""
        chosen = self._choose(indices)
        waiting = {index for index, _ in self._sent}
        if waiting.intersection(chosen):
            raise self._not_received(waiting.intersection(chosen))
        self._sent += self._results(self._check_actions(actions, chosen), chosen)

    def recv(self, *, min_ready: int = 1, timeout: float | None = None) -> Ready:
        """See `VectorEnv.recv`; nothing is waited for."""
        self._require_open()
        sent = self._sent
        self._sent = []
        return Ready([index for index, _ in sent], stack([one for _, one in sent]))

    def close(self) -> None:
        """See `VectorEnv.close`."""
        if not self.closed:
            self.closed = True
            close_each([env.close for env in self.envs])

    def _all_can_step(self, actions: Sequence[str]) -> bool:
        """Return whether each environment can be stepped with a text, as `Env.step` requires."""
        if len(actions) != self.num_envs or isinstance(actions, str) or self.closed:
            return False
        if set(map(type, actions)) != {str}:
            return False
        stands = self._over and self.autoreset == "disabled"
        return not stands and len(self._begun) == self.num_envs

    def _step_some(self, actions: Sequence[str], indices: Iterable[int] | None) -> Steps:
        chosen = self._choose(indices)
        results = self._results(self._check_actions(actions, chosen), chosen)
        return stack([one for _, one in results])

    def _results(self, actions: Sequence[str], chosen: Sequence[int]) -> list[tuple[int, One]]:
        return [(i, self._one(i, action)) for i, action in zip(chosen, actions, strict=True)]

    def _one(self, index: int, action: str) -> One:
        """Step one environment, or begin its next episode."""
        if index in self._over:
            return self._begin(index)
        try:
            result = self.envs[index].step(action)
        except BaseException as error:
            result = make_failed_step(error)
        return self._handle_end(index, result)

    def _begin(self, index: int, **named: Any) -> One:
        """Reset one environment; return its first observation as a step."""
        self._begun.add(index)
        try:
            obs, info = self.envs[index].reset(**named)
        except BaseException as error:
            failed = make_failed_step(error)
            self._stop(index)
            return failed
        self._over.discard(index)
        self._steps[index] = self._own[index]
        return obs, 0.0, False, False, info

    def _beginner(self, index: int) -> Callable[[str], One]:
        """Return what stands in for the step of an environment that needs a reset."""
        return lambda _: self._begin(index)

    def _stop(self, index: int) -> None:
        self._over.add(index)
        self._steps[index] = self._beginner(index)

    def _handle_end(self, index: int, result: One) -> One:
        """Note the end of an episode; begin the next one where that is asked for."""
        if not (result[2] or result[3]):
            return result
        if index in self._over:  # its reset failed
            return result
        if self.autoreset == "same_step":
            try:
                obs, info = self.envs[index].reset()
            except BaseException as error:
                obs, _, _, _, info = make_failed_step(error)
                self._stop(index)
            return with_final(result, obs, info)
        end_episode(self.envs[index])
        self._stop(index)
        return result

    def _continue(
        self, results: list[One], error: BaseException, actions: Sequence[str]
    ) -> list[One]:
        """Step the environments behind one that raised."""
        while True:
            results = [*results, make_failed_step(error)]
            rest = len(results)
            try:
                results.extend(map(call, self._steps[rest:], actions[rest:]))
            except BaseException as another:
                error = another
            else:
                return results
