"""Checks of copies: ``get_state`` and ``set_state``, pickling, ``deepcopy``."""

from __future__ import annotations

import json
import pickle
import random
from copy import deepcopy
from typing import Any

from gem_core.env.checker.subject import Subject, advance, difference, play_to_end, shown
from gem_core.env.interface import Env
from gem_core.errors import EpisodeStateError

_BRANCHES = 4
"""Steps of each episode after which the state is restored in other instances."""
_HINT = "Every attribute that an episode changes must be named in _state_fields."


def check_state(subject: Subject) -> None:
    """A restored state continues like the original, in any instance, through JSON."""
    for seed in subject.seeds:
        env = subject.make()
        chooser = random.Random(seed)
        fresh = subject.make()
        fresh.set_state(json.loads(json.dumps(env.get_state())))
        env.reset(seed=seed)
        for _ in range(_BRANCHES):
            advance(env, chooser)
            state = env.get_state()
            _check_branch(subject, env, fresh, chooser, _stored(subject, state))
            env.set_state(state)
        _check_state_of_ended(subject, env, chooser)


def _stored(subject: Subject, state: dict[str, Any]) -> Any:
    try:
        return json.loads(json.dumps(state))
    except (TypeError, ValueError) as error:
        raise subject.fail(f"get_state() is not JSON data: {error}") from error


def _check_branch(
    subject: Subject, env: Env, fresh: Env, chooser: random.Random, stored: dict[str, Any]
) -> None:
    """Continue from one state in three instances; all must behave alike."""
    ahead = deepcopy(chooser)
    original = [advance(env, ahead) for _ in range(subject.steps)]
    for other in (subject.make(), fresh, env):
        other.set_state(stored)
        ahead = deepcopy(chooser)
        try:
            restored = [advance(other, ahead) for _ in range(subject.steps)]
        except AttributeError as error:
            raise subject.fail(f"a restored copy raised {shown(error)}. {_HINT}") from error
        if restored != original:
            found = difference(original, restored)
            raise subject.fail(f"continues differently; {found}. {_HINT}")


def _check_state_of_ended(subject: Subject, env: Env, chooser: random.Random) -> None:
    if play_to_end(env, chooser) is None:
        return
    other = subject.make()
    other.set_state(env.get_state())
    try:
        other.step(env.random_action(chooser))
    except EpisodeStateError:
        return
    raise subject.fail("the state of an ended episode can be stepped.")


def check_pickle(subject: Subject) -> None:
    """Pickled and deep copies continue like the original."""
    env = subject.make()
    chooser = random.Random(0)
    pickle.loads(pickle.dumps(env))
    env.reset(seed=subject.seeds[0])
    advance(env, chooser)
    copies = [pickle.loads(pickle.dumps(env)), deepcopy(env)]
    original = [advance(env, deepcopy(chooser)) for _ in range(subject.steps)]
    for other in copies:
        copied = [advance(other, deepcopy(chooser)) for _ in range(subject.steps)]
        if copied != original:
            raise subject.fail(f"a copy continues differently; {difference(original, copied)}")
