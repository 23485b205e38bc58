"""`check_env`: run all checks on an environment."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from gem_core.env.checker import calls, players, repeatable, seeding, state, whole_episodes
from gem_core.env.checker.subject import EnvCheckError, Subject, shown
from gem_core.env.interface import Env
from gem_core.env.registration import make, spec
from gem_core.env.spec import EnvSpec
from gem_core.errors import KindError, is_interruption, unknown

CHECKS: dict[str, Callable[[Subject], None]] = {
    "api": calls.check_api,
    "slow": whole_episodes.check_slow,
    "mid_game": whole_episodes.check_mid_game,
    "ends": whole_episodes.check_ends,
    "seeds": seeding.check_seeds,
    "distinct_seeds": seeding.check_distinct_seeds,
    "determinism": repeatable.check_determinism,
    "interleaved": repeatable.check_interleaved,
    "threads": repeatable.check_threads,
    "process": repeatable.check_process,
    "state": state.check_state,
    "pickle": state.check_pickle,
    "malformed": calls.check_malformed,
    "episode_state": calls.check_episode_state,
    "global_rng": repeatable.check_global_rng,
    "success": calls.check_success,
    "infos_kept": calls.check_infos_kept,
    "random_action": calls.check_random_action,
    "players": players.check_players,
}
"""Name -> check, in the order in which they run."""


def check_env(
    env: str | EnvSpec | Callable[[], Env],
    *,
    seeds: Collection[int] = (0, 1, 2),
    steps: int = 40,
    skip: Collection[str] = (),
    passed: Callable[[str], None] | None = None,
    noted: Callable[[str], None] | None = None,
    **kwargs: Any,
) -> None:
    """Check that an environment behaves as trainers need it to.

    Args:
        env: a registered id, a spec, or a function that makes a new environment at each call.
        seeds: seeds of the episodes that are played.
        steps: steps per seed; a finished episode is followed by the next one.
        skip: names of checks to leave out, see `CHECKS`: ``("process",)`` for a factory that
            another process cannot import.
        passed: is told the name of each check that the environment passes.
        noted: is told what is no fault and should be known: an expert that never succeeded.
        **kwargs: keyword arguments for `gem_core.env.registration.make`.

    Raises:
        KindError: ``env`` is something else, such as an environment itself.
        EnvCheckError: a property does not hold; its name is in ``.check`` and in the message.

    >>> check_env("game:GuessTheNumber-v0-easy", skip=("process",))
    """
    for name in skip:
        if name not in CHECKS:
            raise unknown("check", name, CHECKS, f"There are: {', '.join(CHECKS)}.")
    subject = Subject(_factory(env, kwargs), seeds, steps)
    for name, check in CHECKS.items():
        if name in skip:
            continue
        subject.check = name
        try:
            check(subject)
        except EnvCheckError:
            raise
        except BaseException as error:  # an environment's SystemExit would end the caller
            if is_interruption(error):
                raise
            raise subject.fail(f"raised {shown(error)}") from error
        if passed is not None:
            passed(name)
    if noted is not None:
        for note in subject.noted:
            noted(note)


class _Make:
    """A picklable factory of a spec."""

    def __init__(self, spec: EnvSpec):
        self.spec = spec

    def __call__(self) -> Env:
        return make(self.spec)


def _factory(env: str | EnvSpec | Callable[[], Env], kwargs: dict[str, Any]) -> Callable[[], Env]:
    if isinstance(env, str):
        env = spec(env)
    if isinstance(env, EnvSpec):
        return _Make(env.replace(**kwargs))
    if isinstance(env, Env) or not callable(env):
        raise KindError(
            "check_env takes an id, a spec or a function that makes environments, not "
            f"{env!r:.60}: write lambda: MyEnv(...), or the class itself."
        )
    if kwargs:
        raise TypeError("Keyword arguments need an id or a spec; give them to the factory instead.")
    return env
