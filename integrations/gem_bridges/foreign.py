"""`ForeignEnv`: what environments of all other packages have in common."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from random import Random
from typing import TYPE_CHECKING, Any

from gem_bridges.global_random import GlobalRandom
from gem_core.env.interface import Env
from gem_core.errors import EpisodeStateError, MissingDependencyError, how_to_install

if TYPE_CHECKING:
    from gem_core.env.interface import Info, ResetResult, StepResult

SEED_LIMIT = 1 << 32
"""Seeds from 0 to this one are handed over unchanged; numpy takes no larger ones."""
DECIDE = "decide"
DO_NOT_DECIDE = "do not decide"
_measured: dict[tuple[str, str], str] = {}


class ForeignEnv(Env):
    """An environment of another package.

    The same seed gives the same episode if the other environment draws from its own seeded
    generator or from the global ones. That is measured at the first reset of every environment in
    a process, by a second one with the same seed. Where the first observations differ, a warning
    says so, and so does every ``info["bridge"]["seeds"]``.

    States are the seed and the actions so far, which are played again in a new environment.

    Args:
        name: of the environment in the other package.
        **kwargs: its parameters.

    Attributes:
        distribution: the name of the package, as it is installed.
        data_revision: the package with its version, so that results of other versions have
            another fingerprint.
    """

    slow = True
    checks_kwargs = True
    distribution: str = ""
    uses_global_random: bool = True

    _state_fields = ("_episode_seed", "_options", "_actions")
    _episode_seed: int
    _options: dict[str, Any] | None
    _actions: list[str]

    def __init__(self, name: str, **kwargs: Any) -> None:
        self.name = name
        self.kwargs = kwargs
        self.data_revision = (
            f"{self.distribution}=={require_version(self.distribution, self.extra)}"
        )
        self._arguments: dict[str, Any] = {"name": name, **kwargs}
        self._next_seed: int | None = None
        self._global = GlobalRandom(0) if self.uses_global_random else None
        self._actions: list[str] = []
        with self._calling():
            self._made = self._make()

    @property
    def extra(self) -> str:
        """The extra of gem-core that installs the package."""
        return self.distribution

    @property
    def seeds(self) -> str:
        """Whether seeds ``decide`` or ``do not decide``; known after the first reset."""
        return _measured.get(self._key, "unknown")

    def provenance(self) -> dict[str, str]:
        """Return ``{"seeds": ...}``, see `seeds`, for the record of a run.

        Where they are not measured yet, an episode is started.
        """
        if self.seeds == "unknown":
            self.reset(seed=0)
        return {"seeds": self.seeds}

    @abstractmethod
    def _make(self) -> Any:
        """Make the other package's environment."""

    @abstractmethod
    def _foreign_reset(self, seed: int, options: dict[str, Any] | None) -> tuple[str, Info]:
        """Start an episode of it."""

    @abstractmethod
    def _foreign_step(self, action: str) -> StepResult:
        """Play an action in it."""

    def _foreign_close(self) -> None:
        """Free its resources."""

    def _seed(self, seed: int) -> None:
        super()._seed(seed)
        self._next_seed = foreign_seed(seed)

    def _reset(self, options: dict[str, Any] | None) -> ResetResult:
        seed = self._next_seed
        self._next_seed = None
        if seed is None:
            seed = self.rng.getrandbits(32)
        first = self._start(seed, options)
        if self._key not in _measured:
            second = self._start(seed, options)
            self._record(first[0] == second[0])
            first = second
        observation, info = first
        info = {**info, "bridge": self._origin()}
        return observation, info

    def _start(self, seed: int, options: dict[str, Any] | None) -> tuple[str, Info]:
        self._episode_seed = seed
        self._options = options
        self._actions = []
        if self._global is not None:
            self._global = GlobalRandom(seed)
        with self._calling():
            return self._foreign_reset(seed, options)

    def _step(self, action: str) -> StepResult:
        with self._calling():
            result = self._foreign_step(action)
        self._actions.append(action)
        return result

    def _close(self) -> None:
        self._foreign_close()

    def _consistent(self) -> bool:
        return 0 <= self._episode_seed < SEED_LIMIT

    def _restored(self) -> None:
        actions = self._actions
        self._start(self._episode_seed, self._options)
        for action in actions:
            self._step(action)

    def get_state(self) -> dict[str, Any]:
        """See `Env.get_state`.

        Raises:
            EpisodeStateError: seeds do not decide, so that a state cannot be reached again.
        """
        if self.seeds == DO_NOT_DECIDE:
            raise EpisodeStateError(
                f"{self.name}: its seeds do not decide what happens, so it has no state that could "
                "be restored: play its episodes to their end."
            )
        return super().get_state()

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _rebuilt, (type(self), self._arguments, self.spec, self.get_state())

    @property
    def _key(self) -> tuple[str, str]:
        return (type(self).__name__, repr(sorted(self._arguments.items())))

    def _record(self, same: bool) -> None:
        _measured[self._key] = DECIDE if same else DO_NOT_DECIDE
        if not same:
            warnings.warn(
                f"{self.name} of {self.data_revision}: two resets with the same seed gave "
                "different tasks. Its episodes cannot be repeated, and the members of a group may "
                "play different tasks.",
                RuntimeWarning,
                stacklevel=4,
            )

    def _origin(self) -> dict[str, str]:
        return {"package": self.data_revision, "name": self.name, "seeds": self.seeds}

    def _calling(self) -> AbstractContextManager[None]:
        return nullcontext() if self._global is None else self._global.in_place()

    def _replace_random(self, rng: Random) -> AbstractContextManager[None]:
        """Let what is called draw from ``rng`` in place of the global generators."""
        return GlobalRandom(rng.getrandbits(32)).in_place()


def foreign_seed(seed: int) -> int:
    """Return the seed that the other package gets: the same one if it has 32 bits.

    >>> foreign_seed(7), foreign_seed(-1) == foreign_seed(1)
    (7, False)
    """
    if 0 <= seed < SEED_LIMIT:
        return seed
    return int.from_bytes(sha256(str(seed).encode()).digest()[:4], "big")


def require_version(distribution: str, extra: str) -> str:
    """Return the version of a package.

    Raises:
        MissingDependencyError: it is not installed.
    """
    try:
        return version(distribution)
    except PackageNotFoundError:
        raise MissingDependencyError(
            f"This environment needs the package {distribution!r}: {how_to_install(extra)}"
        ) from None


def _rebuilt(
    kind: type[ForeignEnv], arguments: dict[str, Any], spec: Any, state: dict[str, Any]
) -> ForeignEnv:
    env = kind(**arguments)
    env.spec = spec
    env.set_state(state)
    return env
