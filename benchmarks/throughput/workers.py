"""Environment workers: rollouts of environments that use a CPU, and a thousand injected faults.

    python benchmarks/throughput/workers.py speed
    python benchmarks/throughput/workers.py faults --count 1000

``speed`` plays the same episodes in this process and in two worker processes, alternately, so that
a busy machine affects both, and measures how long the event loop is blocked. ``faults`` breaks
environments in five ways in worker processes and counts episodes, batches and
processes. Results are added to ``workers.json`` beside this file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

from gem_core.core import Env
from gem_core.episodes.data import Completion, Episode
from gem_core.episodes.rollout import Request, play_batch, play_many
from gem_core.registration import register
from gem_core.training import provenance, run_workers
from gem_core.training.recipe import Recipe, recipe_from_dict
from gem_core.training.tasks import MachineFactory

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
    workers = {"backend": backend, "number": 2, "max_restarts": 100_000}
    return recipe_from_dict({"name": "workers", "env": [env], "workers": workers, **tables})


# -- speed ------------------------------------------------------------------------------------


def rollout(recipe: Recipe, count: int, answer: str) -> tuple[float, list[float]]:
    """Play ``count`` episodes; return the seconds and the pauses of the event loop."""
    factory = MachineFactory(recipe)
    machines = [factory.train(index) for index in range(count)]
    pauses: list[float] = []

    async def tick() -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            pauses.append(now - last - 0.001)
            last = now

    async def play() -> list[Episode]:
        ticking = asyncio.ensure_future(tick())
        await asyncio.sleep(0)
        episodes = await play_many(machines, Answers(answer))
        await asyncio.sleep(0)
        ticking.cancel()
        return episodes

    began = time.perf_counter()
    episodes = asyncio.run(play())
    seconds = time.perf_counter() - began
    failed = [episode.error for episode in episodes if episode.stop_reason.failed]
    assert not failed, failed[0]
    return seconds, pauses


def speed(rounds: int) -> dict[str, Any]:
    cases = {
        "game:Sokoban-v0-hard, 400 resets": ({"id": "game:Sokoban-v0-hard"}, 400, "up"),
        "rg:sokoban, 40 resets": ({"id": "rg:sokoban"}, 40, "<answer>LRUD</answer>"),
    }
    figures = {}
    for name, (env, count, answer) in cases.items():
        env = {**env, "max_turns": 1}
        seconds: dict[str, list[float]] = {"inline": [], "process": []}
        pauses: dict[str, list[float]] = {"inline": [], "process": []}
        for number in range(rounds + 1):
            for backend in seconds:
                recipe = recipe_of(backend, env, seed=number)  # other tasks: some are kept
                spent, paused = rollout(recipe, count, answer)
                if number > 0:  # the first round starts workers and imports modules
                    seconds[backend].append(spent)
                    pauses[backend] += paused
        ratios = [p / i for p, i in zip(seconds["process"], seconds["inline"], strict=True)]
        figures[name] = {
            "inline_s": median(seconds["inline"]),
            "process_s": median(seconds["process"]),
            "ratio": median(ratios),
            "ratios": [round(ratio, 3) for ratio in ratios],
            "longest_pause_inline_ms": 1e3 * max(pauses["inline"]),
            "longest_pause_process_ms": 1e3 * max(pauses["process"]),
            "99.9th_pause_process_ms": 1e3 * quantile(pauses["process"], 0.999),
        }
        print(name, json.dumps(figures[name], indent=1))
    return figures


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


# -- faults -----------------------------------------------------------------------------------


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
    pool = run_workers.run_pool(factory.recipe.workers)
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
    print(json.dumps(figures, indent=1))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["speed", "faults"])
    parser.add_argument("--count", type=int, default=1000, help="faults")
    parser.add_argument("--batch", type=int, default=100, help="episodes of a batch with faults")
    parser.add_argument("--rounds", type=int, default=5)
    provenance.add_option(parser)
    options = parser.parse_args()
    provenance.check_option(parser, options)
    commit = provenance.commit()  # of the code that runs, not of a later one
    if options.what == "speed":
        figures = speed(options.rounds)
    else:
        figures = faults(options.count, options.batch)
    known = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    known[options.what] = {
        "commit": commit,
        "python": platform.python_version(),
        "figures": figures,
    }
    RESULT.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
