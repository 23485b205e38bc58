"""`Env` and `Wrapper`: the interface between a task and the agent that plays it.

`Env.reset` and `Env.step` are short template methods that check the call and delegate to `_reset`
and `_step`, which a subclass implements. Every random number of an environment comes from
``self.rng``; the global ``random`` and ``numpy.random`` are neither read nor written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from operator import index
from random import Random
from typing import TYPE_CHECKING

from gem_core.env.states import check_data, check_fields, read_generator
from gem_core.errors import ActionTypeError, EpisodeStateError, GemError, KindError, StateError

if TYPE_CHECKING:
    from typing import Any

    from gem_core.env.spec import EnvSpec

    Info = dict[str, Any]
    State = dict[str, Any]
    ResetResult = tuple[str, Info]
    StepResult = tuple[str, float, bool, bool, Info]

INFO_ERRORS = {
    "invalid_format": "the answer has no action in the environment's form",
    "invalid_action": "the action was understood, and is not possible now",
}
"""What ``info["error"]`` may be after an action that was not accepted; otherwise it is absent."""
_MISSING = object()
_FRESH, _RUNNING, _OVER, _CLOSED = range(4)
_STATE_MESSAGES = {
    _FRESH: "step() was called before reset(): call reset() to start an episode.",
    _OVER: "The episode is over: call reset() before the next step().",
    _CLOSED: "The environment is closed: make a new one.",
}


class Env(ABC):
    """A task played in text, one episode at a time.

    A subclass implements `_reset`, `_step` and `random_action`, and lists the attributes that hold
    the state of an episode in `_state_fields`.

    Observations are strings. After `reset` the observation is the rules of the task; after a step
    it describes what just happened. A board, if there is one, is text in ``info["suffix"]``.
    ``info["success"]`` (bool) is set at the end of an episode, ``info["error"]``, one of
    `INFO_ERRORS`, after an action that was not accepted.

    Attributes:
        spec: what `gem_core.make` built this environment from; ``None`` without ``make``.
        rng: the only source of randomness, set by the first `reset`.
        slow: whether a step may block (network, subprocess): callers then use a worker.
        fast: whether the class guarantees that no call ever blocks. It is then called directly,
            in the caller's thread and without a deadline; other environments are called in
            threads, which may differ from call to call. Environments of gem_core that are not slow
            do not need it.
        version: increased when the same id and parameters give different episodes than before; part
            of the fingerprint.
    """

    spec: EnvSpec | None = None
    rng: Random
    slow: bool = False
    fast: bool = False
    version: int = 0

    _state_fields: tuple[str, ...] = ()
    _status: int = _FRESH

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> ResetResult:
        """Start an episode.

        Args:
            seed: any integer, also a negative one or one beyond 64 bits: the same seed gives the
                same episode. ``None`` continues with the generator as it is; a generator that was
                never seeded starts from the entropy of the operating system.
            options: passed on to the task; most tasks take none.

        Returns:
            The first observation and the info dict.

        Raises:
            TypeError: the seed is not an integer.
            EpisodeStateError: the environment was closed.
        """
        if self._status == _CLOSED:
            raise EpisodeStateError(_STATE_MESSAGES[_CLOSED])
        if seed is not None:
            self._seed(seed)
        elif getattr(self, "rng", None) is None:
            self.rng = Random()
        result = self._reset(options)
        self._status = _RUNNING
        return result

    def step(self, action: str) -> StepResult:
        """Play one action.

        Args:
            action: the agent's text. Any string is accepted.

        Returns:
            ``(obs, reward, terminated, truncated, info)``. ``terminated``: the task ended by its
            own rules. ``truncated``: it was cut off from outside, so bootstrapping a value is
            right.

        Raises:
            ActionTypeError: the action is not a ``str``.
            EpisodeStateError: no episode is running.
        """
        if not isinstance(action, str):
            raise ActionTypeError(
                f"An action is a str, not {type(action).__name__}: decode token ids to text first."
            )
        if self._status != _RUNNING:
            raise EpisodeStateError(_STATE_MESSAGES[self._status])
        result = self._step(action)
        if result[2] or result[3]:
            self._status = _OVER
        return result

    def close(self) -> None:
        """Free the resources of the environment. It may be called more than once."""
        if self._status != _CLOSED:
            self._close()
            self._status = _CLOSED

    def get_state(self) -> State:
        """Return the complete state, including the generator's, as JSON-serialisable data.

        Together with the parameters of the environment it determines everything that follows: after
        ``other.set_state(env.get_state())``, ``other`` continues exactly as ``env`` would.
        """
        rng = getattr(self, "rng", None)
        return {
            "env": type(self).__name__,
            "status": self._status,
            "rng": None if rng is None else _rng_to_json(rng),
            "fields": self._get_fields(),
        }

    def set_state(self, state: State) -> None:
        """Restore a state that `get_state` of an environment with the same parameters returned.

        A state may come from anywhere: it is data, checked before it is used.

        Raises:
            StateError: the state belongs to another kind of environment, is damaged, or contradicts
                itself; the environment is as it was before.
        """
        self._check_state(state)
        before = Env.get_state(self)
        try:
            self._apply(state)
        except Exception as error:
            self._take_back(before)
            if isinstance(error, GemError):
                raise
            raise StateError(
                f"This is no state of {type(self).__name__}: {type(error).__name__}: {error!s:.200}"
            ) from error

    def random_action(self, rng: Random) -> str:
        """Return a random action in the right format, drawn from the caller's ``rng``.

        The action is well-formed, but not necessarily legal or good: a square may be occupied.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define random_action(rng).")

    @property
    def unwrapped(self) -> Env:
        """The environment inside all wrappers."""
        return self

    @abstractmethod
    def _reset(self, options: dict[str, Any] | None) -> ResetResult:
        """Draw the task of an episode from ``self.rng``; return the observation and the info."""

    @abstractmethod
    def _step(self, action: str) -> StepResult:
        """Play one action of a running episode. Must not raise, whatever the text."""

    def _close(self) -> None:  # noqa: B027
        """Free resources; called at most once."""

    def _consistent(self) -> bool:
        """Return whether the fields of a started episode fit each other.

        `set_state` asks before anything is derived from them: so a number that decides how much
        memory or time is used is compared with what is there.
        """
        return True

    def _restored(self) -> None:  # noqa: B027
        """Rebuild what is derived from the fields of a started episode; called by `set_state`."""

    def _apply(self, state: State) -> None:
        if state["rng"] is None:
            if getattr(self, "rng", None) is not None:
                del self.rng
        elif getattr(self, "rng", None) is None:
            self.rng = read_generator(state["rng"])
        else:
            version, internal, gauss = state["rng"]
            self.rng.setstate((version, tuple(internal), gauss))
        self._set_fields(state["fields"])
        self._status = state["status"]
        if self._status != _FRESH:
            if not self._consistent():
                raise StateError(
                    f"The fields of this state of {type(self).__name__} contradict each other."
                )
            self._restored()

    def _take_back(self, state: State) -> None:
        """Return to a state of this object after a failed `_apply`."""
        try:
            self._apply(state)
        except Exception:  # what it had is lost: it has to be reset
            self._status = _FRESH

    def _seed(self, seed: int) -> None:
        try:
            number = index(seed)
        except TypeError:
            raise TypeError(
                f"seed must be an integer or None, not {type(seed).__name__} ({seed!r:.60})."
            ) from None
        # random.Random ignores the sign of its seed; zigzag keeps -1 and 1 apart.
        number = 2 * number if number >= 0 else -2 * number - 1
        rng = getattr(self, "rng", None)
        if rng is None:
            self.rng = Random(number)
        else:
            rng.seed(number)

    def _get_fields(self) -> State:
        # Not through __dict__: reading it makes every later attribute access in CPython slower.
        missing = _MISSING
        values = ((name, getattr(self, name, missing)) for name in self._state_fields)
        return {name: _copy(value) for name, value in values if value is not missing}

    def _set_fields(self, fields: State) -> None:
        for name in self._state_fields:
            if name in fields:
                setattr(self, name, _copy(fields[name]))
            elif hasattr(self, name):
                self.__dict__.pop(name, None)

    def _check_state(self, state: State) -> None:
        """Check all that can be checked of a state without using it."""
        self._check_kind(state)
        check_data({name: part for name, part in state.items() if name != "rng"})
        status = state.get("status")
        if type(status) is not int or not _FRESH <= status <= _OVER:
            raise StateError(f"A state has no status {status!r:.60}.")
        if state.get("rng") is not None:
            read_generator(state["rng"])
        elif status != _FRESH:
            raise StateError("The state of a started episode has a generator.")
        self._check_fields(state, started=status != _FRESH)

    def _check_kind(self, state: State) -> None:
        if not isinstance(state, dict) or state.get("env") != type(self).__name__:
            kind = state.get("env") if isinstance(state, dict) else state
            raise StateError(
                f"This state belongs to {kind!r:.60}, not to {type(self).__name__!r}: make "
                "the environment that it was taken from, with the same wrappers."
            )

    def _check_fields(self, state: State, *, started: bool) -> None:
        check_fields(type(self), self._state_fields, state.get("fields"), started=started)

    def __enter__(self) -> Env:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"<{name}>" if self.spec is None else f"<{name} {self.spec.id}>"


class Wrapper(Env):
    """An environment around another one; attributes that it does not define are the inner one's.

    They are looked up in the inner environment at each access, never copied. A subclass overrides
    `reset` and `step` and lists the attributes of its own state in `_state_fields`.
    """

    def __init__(self, env: Env):
        """Wrap ``env``.

        Raises:
            KindError: it has no `reset` and `step`, as an id has none.
        """
        if not (hasattr(env, "reset") and hasattr(env, "step")):
            raise KindError(
                f"{type(self).__name__} wraps an environment, not {env!r:.60}: make it first, with "
                "gem_core.make(id)."
            )
        self.env = env

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> ResetResult:
        """Start an episode of the inner environment."""
        return self.env.reset(seed=seed, options=options)

    def step(self, action: str) -> StepResult:
        """Play one action in the inner environment."""
        return self.env.step(action)

    def close(self) -> None:
        """Close the inner environment."""
        self.env.close()

    def get_state(self) -> State:
        """Return the state of the wrapper and of everything inside it."""
        return {
            "env": type(self).__name__,
            "fields": self._get_fields(),
            "inner": self.env.get_state(),
        }

    def set_state(self, state: State) -> None:
        """Restore a state that `get_state` of the same stack of wrappers returned.

        Raises:
            StateError: see `Env.set_state`.
        """
        self._check_state(state)
        self.env.set_state(state["inner"])
        self._set_fields(state["fields"])
        self._restored()

    def _check_state(self, state: State) -> None:
        self._check_kind(state)
        check_data(state.get("fields"))
        self._check_fields(state, started=True)
        if "inner" not in state:
            raise StateError("The state of a wrapper has that of the inner environment.")

    def random_action(self, rng: Random) -> str:
        """Return a random well-formed action of the inner environment."""
        return self.env.random_action(rng)

    @property
    def unwrapped(self) -> Env:
        """The environment inside all wrappers."""
        return self.env.unwrapped

    @property
    def spec(self) -> EnvSpec | None:  # type: ignore[override]
        """The spec of the inner environment."""
        return self.env.spec

    @property
    def rng(self) -> Random:  # type: ignore[override]
        """The generator of the inner environment."""
        return self.env.rng

    @property
    def slow(self) -> bool:  # type: ignore[override]
        """Whether a step of the inner environment may block."""
        return self.env.slow

    @property
    def version(self) -> int:  # type: ignore[override]
        """The version of the inner environment."""
        return self.env.version

    def __getattr__(self, name: str) -> Any:
        # The second test is for unpickling and copying, which ask for attributes before `env` is
        # set.
        if name.startswith("_") or "env" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.env, name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}{self.env!r}>"

    def _reset(self, options: dict[str, Any] | None) -> ResetResult:
        raise NotImplementedError("A wrapper overrides reset().")

    def _step(self, action: str) -> StepResult:
        raise NotImplementedError("A wrapper overrides step().")


def end_episode(env: Env) -> None:
    """Note that the episode of ``env`` is over, for callers of ``env._step``."""
    if type(env).step is Env.step:
        env._status = _OVER


def _copy(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_copy(v) for v in value]
    if isinstance(value, dict):
        return {k: _copy(v) for k, v in value.items()}
    return value


def _rng_to_json(rng: Random) -> list[Any]:
    version, internal, gauss = rng.getstate()
    return [version, list(internal), gauss]
