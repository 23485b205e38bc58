"""`VectorEnv`: many environments behind one `reset` and one `step`."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from gem_core.env.remote.errors import remote_place
from gem_core.errors import EpisodeStateError, error_line, is_interruption
from gem_core.execution.workers import EnvDeadlineError

Autoreset: TypeAlias = Literal["next_step", "same_step", "disabled"]
"""When an environment whose episode is over is reset, as in Gymnasium."""
Seeds: TypeAlias = int | Sequence[int | None] | None
One: TypeAlias = tuple[str, float, bool, bool, dict[str, Any]]
"""What one step of one environment returns."""


class Steps(NamedTuple):
    """What the steps of several environments returned, one item per environment.

    Attributes:
        obs: observations.
        rewards: float64.
        terminated: bool.
        truncated: bool.
        infos: infos; with ``autoreset="same_step"`` that of an ended episode has ``final_obs`` and
            ``final_info``.
    """

    obs: Sequence[str]
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    infos: Sequence[dict[str, Any]]


class Ready(NamedTuple):
    """What `VectorEnv.recv` returns: `Steps`, and which environments they are of.

    Attributes:
        indices: positions of the environments, in the order in which they were ready.
        steps: their steps.
    """

    indices: list[int]
    steps: Steps


class VectorEnv(ABC):
    """Many environments, see `make_vec`; a context manager that closes them.

    An environment that raises, hangs or whose worker ends does not end the others: its step returns
    an empty observation, the reward 0 and ``truncated``, with ``info["stop_reason"]``
    (``"env_error"`` or ``"deadline"``) and ``info["exception"]``, and its next episode begins as
    after any other end.

    Attributes:
        ids: the id of each environment.
        autoreset: when environments whose episode is over are reset.
    """

    def __init__(self, ids: Sequence[str], autoreset: Autoreset) -> None:
        if autoreset not in get_args(Autoreset):
            choices = ", ".join(get_args(Autoreset))
            raise ValueError(f"autoreset is one of {choices}, not {autoreset!r}.")
        self.ids = list(ids)
        self.autoreset: Autoreset = autoreset
        self.closed = False
        self._over: set[int] = set(range(len(self.ids)))  # environments that need a reset
        self._begun: set[int] = set()

    @property
    def num_envs(self) -> int:
        """Number of environments."""
        return len(self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    @abstractmethod
    def reset(
        self,
        *,
        seed: Seeds = None,
        options: dict[str, Any] | None = None,
        indices: Iterable[int] | None = None,
    ) -> tuple[list[str], list[dict[str, Any]]]:
        """Begin an episode in all environments, or in those of ``indices``.

        Args:
            seed: one per environment; a number gives environment ``i`` the seed ``seed + i``;
                ``None`` continues with the generators as they are.
            options: passed on to each.
            indices: which; ``None`` = all.

        Returns:
            Observations and infos, in the order of ``indices``.
        """

    @abstractmethod
    def step(self, actions: Sequence[str], indices: Iterable[int] | None = None) -> Steps:
        """Play one action in all environments, or in those of ``indices``, and wait for them.

        Raises:
            EpisodeStateError: an environment was never reset, or its episode is over and
                ``autoreset="disabled"``.
            ValueError: there is not one action per environment.
        """

    @abstractmethod
    def send(self, actions: Sequence[str], indices: Iterable[int] | None = None) -> None:
        """Begin a step in some environments; `recv` returns those that are done.

        Raises:
            EpisodeStateError: as `step`, or a step of such an environment was not received.
        """

    @abstractmethod
    def recv(self, *, min_ready: int = 1, timeout: float | None = None) -> Ready:
        """Return the steps that are done.

        Args:
            min_ready: wait until so many are, or all that were sent.
            timeout: but at most so many seconds; ``None`` = no limit.
        """

    @abstractmethod
    def close(self) -> None:
        """Close all environments and end what they live in; may be called more than once."""

    def __enter__(self) -> VectorEnv:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- what the backends share ---------------------------------------------------------------

    def _seeds(self, seed: Seeds, indices: Sequence[int]) -> list[int | None]:
        if seed is None:
            return [None] * len(indices)
        if isinstance(seed, Sequence):
            if len(seed) != len(indices):
                raise ValueError(f"{len(seed)} seeds were given for {len(indices)} environments.")
            return list(seed)
        return [operator.index(seed) + index for index in indices]

    def _choose(self, indices: Iterable[int] | None) -> list[int]:
        self._require_open()
        if indices is None:
            return list(range(self.num_envs))
        chosen = [operator.index(index) for index in indices]
        wrong = [i for i in chosen if not 0 <= i < self.num_envs]
        if wrong or len(set(chosen)) < len(chosen):
            raise ValueError(
                f"indices are different numbers from 0 to {self.num_envs - 1}, not {chosen}."
            )
        return chosen

    def _require_open(self) -> None:
        if self.closed:
            raise EpisodeStateError("The vector environment is closed: make a new one.")

    @staticmethod
    def _not_received(indices: Iterable[int]) -> EpisodeStateError:
        return EpisodeStateError(
            f"The last steps of the environments {sorted(indices)} were not received: call recv()."
        )

    def _check_actions(self, actions: Sequence[str], indices: Sequence[int]) -> Sequence[str]:
        """Return the actions if there is one per environment and each can be stepped."""
        if isinstance(actions, str) or len(actions) != len(indices):
            raise ValueError(f"{len(indices)} environments need as many actions, one str each.")
        for index in indices:
            if index not in self._begun:
                raise EpisodeStateError(
                    f"Environment {index} was never reset: call reset() before step()."
                )
            if self.autoreset == "disabled" and index in self._over:
                raise EpisodeStateError(
                    f"The episode of environment {index} is over: call reset(indices=[{index}])."
                )
        return actions


def make_failed_step(error: BaseException) -> One:
    """Return the step of an environment that failed.

    Raises:
        BaseException: ``error`` itself, if it asks this program to stop.
    """
    if is_interruption(error):
        raise error
    reason = "deadline" if isinstance(error, EnvDeadlineError) else "env_error"
    info = {
        "success": False,
        "stop_reason": reason,
        "exception": f"{error_line(error)}{remote_place(error)}",
    }
    return "", 0.0, False, True, info


def close_each(closes: Iterable[Callable[[], object]]) -> None:
    """Close environments: each, also after one that failed to.

    Raises:
        BaseException: the first that one of them raised.
    """
    first: BaseException | None = None
    for close in closes:
        try:
            close()
        except BaseException as error:
            first = first or error
    if first is not None:
        raise first


def with_final(result: One, obs: str, info: dict[str, Any]) -> One:
    """Return the last step of an episode with the beginning of the next, as Gymnasium does."""
    last_obs, reward, terminated, truncated, last_info = result
    merged = {**info, "final_obs": last_obs, "final_info": last_info}
    return obs, reward, terminated, truncated, merged


def stack(results: Sequence[One]) -> Steps:
    """Return the steps of several environments as arrays."""
    if not results:
        none = np.zeros(0, dtype=bool)
        return Steps((), np.zeros(0), none, none.copy(), ())
    obs, rewards, terminated, truncated, infos = zip(*results, strict=True)
    return Steps(
        obs,
        np.array(rewards, dtype=np.float64),
        np.array(terminated, dtype=bool),
        np.array(truncated, dtype=bool),
        infos,
    )
