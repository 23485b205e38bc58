"""A policy of given actions; recipes and episodes of the tests with environment servers."""

from __future__ import annotations

import time

import faulty_env

from gem_core.episodes.data import Completion
from gem_core.runs.environments import pools as run_pools
from gem_core.runs.recipe.load import recipe_from_dict
from gem_core.runs.tasks import MachineFactory

GUESS = "game:GuessTheNumber-v0-easy"


class Actions:
    """Plays ``actions[index][turn]``, ``"a"`` where there is none; ``before[turn]`` comes first."""

    def __init__(self, actions=None, before=None):
        self.actions = actions or {}
        self.before = dict(before or {})

    def one(self, request):
        machine = request.machine
        actions = self.actions.get(machine.index, [])
        text = actions[machine.turn] if machine.turn < len(actions) else "a"
        return Completion([], text=text)

    def complete_batch(self, requests):
        self.before.pop(requests[0].machine.turn, lambda: None)()
        return [self.one(request) for request in requests]

    async def complete(self, request):
        return self.one(request)


def recipe_of(address, *envs, **tables):
    workers = {"backend": "inline"}
    if address is not None:
        workers = {"backend": "server", "address": address, **tables.pop("workers", {})}
    envs = envs or ({"id": faulty_env.ID},)
    return recipe_from_dict({"name": "w", "env": list(envs), "workers": workers, **tables})


def eventually(condition):
    """Wait until something is so that another thread or process brings about."""
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def until_lost(recipe, address=None):
    """Wait until this process knows that its connections to a server are lost."""
    sessions = list(run_pools.run_sessions(recipe.workers)._sessions)
    clients = [session._client for session in sessions if session._client is not None]
    mine = [client for client in clients if address in (None, client.address)]
    eventually(lambda: not any(client.is_open for client in mine))


def played(play, recipe, count, policy=None):
    factory = MachineFactory(recipe)
    episodes = play([factory.train(index) for index in range(count)], policy or Actions())
    for episode in episodes:
        assert episode.seconds["env"] >= 0
        episode.seconds.clear()
    return episodes
