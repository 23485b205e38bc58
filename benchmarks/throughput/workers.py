"""Environment workers: a thousand injected faults.

    python benchmarks/throughput/workers.py --count 1000

Breaks environments in five ways in worker processes and counts episodes, batches and processes. The
result is ``workers.json`` beside this file.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import conditions

from gem_core.env.interface import Env
from gem_core.env.registration import register
from gem_core.episodes.data import Completion
from gem_core.episodes.rollout import Request, play_batch, play_many
from gem_core.runs import provenance
from gem_core.runs.environments import pools as run_pools
from gem_core.runs.recipe.load import recipe_from_dict
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.tasks import MachineFactory

HERE = Path(__file__).resolve().parent
RESULT = HERE / "workers.json"
FAULTS = ("exception", "hang", "exit", "memory", "kill")


class Answers:
    """Gives every episode the same answer, or the one that its index decides."""

    def __init__(self, answer: str | dict[int, str]) -> None:
        self.answer = answer

    def one(self, request: Request) -> Completion:
        if isinstance(self.answer, str):
            return Completion([], text=self.answer)
        kind = self.answer.get(request.machine.index, "go on")
        return Completion([], text=kind if request.machine.turn == 1 else "go on")

    async def complete(self, request: Request) -> Completion:
        return self.one(request)

    def complete_batch(self, requests: list[Request]) -> list[Completion]:
        return [self.one(request) for request in requests]


def recipe_of(backend: str, env: dict[str, Any], **tables: Any) -> Recipe:
    workers: dict[str, Any] = {"backend": backend}
    if backend == "process":
        workers |= {"number": 2, "max_restarts": 100_000}
    return recipe_from_dict({"name": "workers", "env": [env], "workers": workers, **tables})


class Faulty(Env):
    """Three turns; an action names the fault that happens in its step."""

    _state_fields = ("turns",)
    fast = True

    def _reset(self, options: Any) -> tuple[str, dict[str, Any]]:
        self.turns = 0
        return f"begin {self.rng.random()}", {}

    def _step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.turns += 1
        if action == "exception":
            raise KeyError("on purpose")
        if action == "memory":
            raise MemoryError("on purpose")
        if action == "hang":
            time.sleep(3600)
        if action == "exit":
            os._exit(9)
        if action == "kill":
            os.kill(os.getpid(), 9)
        return f"drew {self.rng.random()}", 0.0, self.turns == 3, False, {"success": True}


def children() -> set[int]:
    """Return the processes below this one."""
    below: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        below.setdefault(int(fields[1]), []).append(int(name))
    todo = [os.getpid()]
    found: set[int] = set()
    while todo:
        for pid in below.get(todo.pop(), []):
            found.add(pid)
            todo.append(pid)
    return found


def faults(count: int, batch: int) -> dict[str, Any]:
    """Break half of the episodes of each batch; compare the others with a run without faults."""
    sys.path.insert(0, str(HERE))
    register("bench:Faulty-v0", "workers:Faulty")
    env = {"id": "bench:Faulty-v0"}
    limits = {"turn_deadline_s": 0.25}
    factory = MachineFactory(recipe_of("process", env, limits=limits))
    plain = MachineFactory(recipe_of("inline", env))
    reasons: Counter[str] = Counter()
    untyped = 0
    different = 0
    batches = 0
    began = time.perf_counter()
    for first in range(0, 2 * count, batch):
        indices = range(first, min(first + batch, 2 * count))
        kinds = {k: FAULTS[k // 2 % len(FAULTS)] for k in indices if k % 2}
        machines = [factory.train(k) for k in indices]
        policy = Answers(kinds)
        if batches % 2:
            episodes = play_batch(machines, policy)
        else:
            episodes = asyncio.run(play_many(machines, policy))
        batches += 1
        expected = play_batch([plain.train(k) for k in indices], Answers("go on"))
        for episode, other in zip(episodes, expected, strict=True):
            kind = kinds.get(episode.index)
            if kind is None:
                episode.seconds.clear()
                other.seconds.clear()
                different += episode != other
            else:
                reasons[f"{kind}: {episode.stop_reason.value}"] += 1
                where = f"bench:Faulty-v0, seed {episode.seed}: "
                untyped += not (episode.error or "").startswith(where)
    pool = run_pools.run_pool(factory.recipe.workers)
    seconds = time.perf_counter() - began
    pool.close()
    figures = {
        "faults": count,
        "batches": batches,
        "episodes": 2 * count,
        "reasons": dict(sorted(reasons.items())),
        "without_environment_and_seed": untyped,
        "others_that_differ": different,
        "workers_replaced": pool.restarts,
        "processes_left": len(children()),
        "seconds": seconds,
    }
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=100, help="episodes of a batch")
    provenance.add_option(parser)
    options = parser.parse_args()
    provenance.check_option(parser, options)
    before = conditions.begin()
    conditions.write(RESULT, before, faults(options.count, options.batch))


if __name__ == "__main__":
    main()
