"""Checks of seeds: which are accepted, and that different ones are not treated alike."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any, NamedTuple

from gem_core.env.checker.inputs import BAD_SEEDS, FAR_SEEDS, GOOD_SEEDS, OTHER_SIGN
from gem_core.env.checker.subject import Subject, as_json
from gem_core.env.interface import Env

_NEAR = range(8)
_DISTINCT = 4
"""An environment that gives this many tasks for the seeds 0 to 7 depends on its seed."""


def check_seeds(subject: Subject) -> None:
    """``reset`` accepts every integer as a seed and refuses everything else."""
    env = subject.make()
    for seed in GOOD_SEEDS:
        env.reset(seed=seed)
    for bad in BAD_SEEDS:
        try:
            env.reset(seed=bad)  # type: ignore[arg-type]
        except TypeError:
            continue
        raise subject.fail(f"reset(seed={bad!r}) must raise TypeError.")


def check_distinct_seeds(subject: Subject) -> None:
    """No two seeds are treated as the same one.

    Two seeds may give the same task by chance, in an environment with few tasks. They collide if
    the generator is the same after them, too. For an environment that draws its tasks from another
    generator, the tasks alone decide: a sign is ignored if the seeds 1 to 7, which give different
    tasks, all give those of -1 to -7. With a power of two added, that is right where the seed
    numbers the items of a data set, so that it counts only without a generator.
    """
    env = subject.make()
    near = {seed: _task(env, seed) for seed in _NEAR}
    far = {seed: {k: _task(env, move(seed)) for k, move in FAR_SEEDS.items()} for seed in _NEAR}
    for one, other in combinations(near, 2):
        if near[one].generator and near[one] == near[other]:
            raise subject.fail(f"the seeds {one} and {other} give the same generator and task.")
    for name in FAR_SEEDS:
        pairs = [(near[seed], far[seed][name]) for seed in _NEAR[1:]]
        if any(one.generator and one == other for one, other in pairs) or (
            len({task.shown for task in near.values()}) >= _DISTINCT
            and all(one.shown == other.shown for one, other in pairs)
            and (name == OTHER_SIGN or not near[0].generator)
        ):
            raise subject.fail(
                f"a seed and {name} are treated as the same one; use every bit and the sign."
            )


class _Task(NamedTuple):
    """The task of a seed, and the state of the environment's generator, ``""`` without one."""

    shown: str
    generator: str


def _task(env: Env, seed: int) -> _Task:
    shown = as_json(env.reset(seed=seed))
    state = env.get_state()
    rng = getattr(env.unwrapped, "rng", None)
    text = json.dumps([shown, _without_rng(state)], default=repr, sort_keys=True)
    return _Task(text, "" if rng is None else repr(rng.getstate()))


def _without_rng(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: _without_rng(value) for key, value in state.items() if key != "rng"}
    return state
