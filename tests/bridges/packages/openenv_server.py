"""A server of the released OpenEnv, ``python openenv_server.py PORT``: guess a number."""

from __future__ import annotations

import random
import sys
from typing import Any

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app


class Guess(Action):
    message: str


class Told(Observation):
    text: str = ""


class Game(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Told:
        self.number = random.Random(seed).randint(1, 10)
        self.known = State(episode_id=episode_id, step_count=0)
        half = "at most 5" if self.number <= 5 else "at least 6"
        return Told(text=f"Guess a number from 1 to 10 in three turns. It is {half}.")

    def step(self, action: Guess, timeout_s: float | None = None, **_: Any) -> Told:
        self.known.step_count += 1
        right = str(self.number) in action.message
        done = right or self.known.step_count >= 3
        metadata = {"success": right} if done else {}
        text = "Right." if right else "Wrong."
        return Told(text=text, done=done, reward=float(right), metadata=metadata)

    @property
    def state(self) -> State:
        return self.known


if __name__ == "__main__":
    app = create_fastapi_app(Game, Guess, Told, max_concurrent_envs=64)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
