"""Code of the driver and the five stock loops: the experiment, its prompts, a reward, a log."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from gem_core.runs.recipe.load import load_recipe, recipe_from_dict
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.tasks import MachineFactory, train_task

BASELINE = "guess-the-number-easy"
PROFILE = "tiny"
OVERRIDES = (
    "env=[{id='game:GuessTheNumber-v0-easy', kwargs={max_turns=1}}]",
    "algorithm.estimator=grpo",
    "algorithm.epochs=1",  # RL2's own loop supports no more
    "batch.group_size=8",
    "algorithm.lr=1e-6",  # both sides' rewards differ: the policy, and its lengths, stay
    "eval.episodes=0",
)
"""Overrides that make the tiny baseline an experiment for every trainer's own loop."""
FOLDER = "GEM_OVERHEAD_FOLDER"
"""Environment variable with the directory of a stock loop's files and its log."""


def experiment(steps: int) -> Recipe:
    """Return the recipe of the comparison."""
    return load_recipe(BASELINE, PROFILE, [*OVERRIDES, f"train.steps={steps}"])


def folder() -> Path:
    """Return the directory of the current run."""
    return Path(os.environ[FOLDER])


def prepare(path: Path, recipe: Recipe) -> None:
    """Write the recipe, and the prompts of the environment: one per group and step."""
    factory = MachineFactory(recipe)
    size = recipe.batch.group_size
    path.mkdir(parents=True)
    (path / "recipe.json").write_text(json.dumps(recipe.to_dict()), encoding="utf-8")
    with (path / "prompts.jsonl").open("w", encoding="utf-8") as file:
        for first in range(0, recipe.train.steps * recipe.batch.episodes, size):
            machine = factory(train_task(recipe, first))
            machine.start()
            file.write(json.dumps({"prompt": machine.prompt_text}) + "\n")


def given() -> Recipe:
    """Return the recipe of the current run."""
    return recipe_from_dict(json.loads((folder() / "recipe.json").read_text(encoding="utf-8")))


def prompts() -> list[str]:
    """Return the prompts of the current run."""
    lines = (folder() / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["prompt"] for line in lines]


def reward(response: str) -> float:
    """Return 1 for a response with an even digit, else 0, so that members of a group differ."""
    return float(any(digit in response for digit in "02468"))


def log(rollout: float, update: float, tokens: float) -> None:
    """Append a training step: seconds of generation and update, number of trained tokens."""
    row = {"time": time.time(), "rollout": rollout, "update": update, "tokens": tokens}
    with (folder() / "steps.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def adapter_asked() -> list[str]:
    """Return the arguments of ``gem-core``, if the script must run it with its own stopwatch."""
    return sys.argv[2:] if sys.argv[1:2] == ["--adapter"] else []


class Stopwatch:
    """Measures the seconds spent in methods, for a trainer that does not log them itself."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def around(self, owner: Any, method: str) -> None:
        """Time every call of ``owner.method``."""
        call: Callable[..., Any] = getattr(owner, method)

        @wraps(call)  # an adapter looks at signatures
        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                spent = time.perf_counter() - began
                self.seconds[method] = self.seconds.get(method, 0.0) + spent

        setattr(owner, method, timed)

    def take(self) -> dict[str, float]:
        """Return the seconds by method since the last call of `take`."""
        seconds = self.seconds
        self.seconds = {}
        return seconds
