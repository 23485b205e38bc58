"""Defines an environment and plays it in workers, as a user's script does; prints the episodes."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass

import gem_core
from gem_core.env.interface import Env
from gem_core.episodes.data import Completion
from gem_core.episodes.rollout import play_batch
from gem_core.execution.vector import make_vec
from gem_core.runs.environments.pools import close_run_pools
from gem_core.runs.recipe.load import recipe_from_dict
from gem_core.runs.tasks import MachineFactory

COUNTS = {"resets": 0}


@dataclass
class Seen:
    pid: int
    resets: int


def shout(text):
    return text.upper()


class Base(Env):
    def _reset(self, options):
        COUNTS["resets"] += 1
        self.turn = 0
        return f"say {self.rng.randrange(100)}", {"seen": Seen(os.getpid(), COUNTS["resets"])}


class Echo(Base):
    version = 3
    _state_fields = ("turn",)

    def __init__(self, times=1):
        super().__init__()
        self.times = times

    def _step(self, action):
        self.turn += 1
        return self.times * shout(action), 1.0, self.turn == 2, False, {}


class Says:
    def complete_batch(self, requests):
        return [Completion([], text="hello") for _ in requests]


def play_vector(backend):
    with make_vec("my:Echo-v0", 4, backend=backend, workers=1, kwargs={"times": 2}) as envs:
        obs, infos = envs.reset(seed=5)
        steps = envs.step(["hey"] * 4)
        seen = [info["seen"] for info in infos]
    assert all(type(one) is Seen for one in seen), seen
    return {
        "obs": obs,
        "answers": steps.obs,
        "elsewhere": all(one.pid != os.getpid() for one in seen),
        "resets": [one.resets for one in seen],
    }


def play_run(backend):
    table = {"backend": backend, **({} if backend == "inline" else {"number": 1})}
    recipe = recipe_from_dict({"name": "s", "env": [{"id": "my:Echo-v0"}], "workers": table})
    factory = MachineFactory(recipe)
    episodes = play_batch([factory.train(index) for index in range(3)], Says())
    close_run_pools(None)
    return [[turn.observation for turn in episode.turns] for episode in episodes]


if __name__ == "__main__":
    gem_core.register("my:Echo-v0", "__main__:Echo")
    backend = sys.argv[1]
    vectors = [play_vector(backend), play_vector("sync")]
    print(json.dumps([*vectors, play_run(backend), play_run("inline")]))
