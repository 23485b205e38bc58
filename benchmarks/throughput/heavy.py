"""Environments that use a CPU: rollouts in worker processes against rollouts inline.

    python benchmarks/throughput/heavy.py

Plays the same episodes with ``workers.backend`` ``inline`` and ``process`` (two workers),
alternately, so that a busy machine affects both. The wall time of a backend is the best of its
rounds, because other programs only ever add to it; all rounds are in ``heavy.json`` beside this
file. The inline side plays in a process of its own, so that this one has loaded only what a trainer
with workers has. A coroutine beside the episodes that only sleeps measures for how long they keep
the event loop to themselves: the time by which it is late, and the CPU time that this process used
in it. What is more than that CPU time was taken by other processes, the workers included. The third
side, ``halves``, is what the machine has to give at that time: two processes that know nothing of
each other play half of the episodes each, inline.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import hashlib
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import conditions
import heavy_envs

from gem_core.env.registration import register
from gem_core.episodes.data import Completion, Episode
from gem_core.episodes.rollout import Request, play_many
from gem_core.runs import provenance
from gem_core.runs.environments import pools as run_pools
from gem_core.runs.recipe.load import recipe_from_dict
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.tasks import MachineFactory

RESULT = Path(__file__).resolve().parent / "heavy.json"
WORKERS = 2
SLEEP_S = 0.001
# name -> environment, episodes, what the policy answers
CASES: dict[str, tuple[dict[str, Any], int, str]] = {
    "sympy grades 2 turns": ({"id": heavy_envs.ID}, 100, "(x - 1)*(x**2 + 2)*(x - 3)"),
    "Sokoban-hard resets": ({"id": "game:Sokoban-v0-hard", "max_turns": 1}, 400, "up"),
    "rg:sokoban resets": ({"id": "rg:sokoban", "max_turns": 1}, 100, "<answer>LRUD</answer>"),
}
SIDES = ("inline", "process", "halves")


class Answers:
    """Gives every episode the same answer."""

    def __init__(self, answer: str) -> None:
        self.answer = answer

    async def complete(self, request: Request) -> Completion:
        return Completion([], text=self.answer)


class Lateness:
    """How late a coroutine is that sleeps: wall seconds and CPU seconds of this process.

    Attributes:
        collections: wall seconds of the garbage collections meanwhile, which are part of it.
    """

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []
        self.collections: list[float] = []
        self._began = 0.0

    def note_collection(self, phase: str, _: dict[str, int]) -> None:
        """Take a callback of the garbage collector."""
        now = time.perf_counter()
        if phase == "start":
            self._began = now
        else:
            self.collections.append(now - self._began)

    async def watch(self) -> None:
        while True:
            wall, cpu = time.perf_counter(), time.process_time()
            await asyncio.sleep(SLEEP_S)
            self.cpu.append(time.process_time() - cpu)
            self.wall.append(time.perf_counter() - wall - SLEEP_S)


def rollout(recipe: Recipe, indices: Iterable[int], answer: str) -> tuple[dict[str, float], str]:
    """Play some episodes; return the figures of one round, and a digest of them."""
    factory = MachineFactory(recipe)
    machines = [factory.train(index) for index in indices]
    late = Lateness()

    async def play() -> list[Episode]:
        watching = asyncio.ensure_future(late.watch())
        gc.callbacks.append(late.note_collection)
        await asyncio.sleep(0)
        episodes = await play_many(machines, Answers(answer))
        await asyncio.sleep(0)
        gc.callbacks.remove(late.note_collection)
        watching.cancel()
        return episodes

    pool = run_pools.run_pool(recipe.workers) if recipe.workers.backend == "process" else None
    pids = pool.pids if pool else []
    began, cpu, theirs = time.perf_counter(), time.process_time(), conditions.cpu_seconds(pids)
    episodes = asyncio.run(play())
    figures = {
        "wall_s": time.perf_counter() - began,
        "cpu_own_s": time.process_time() - cpu,
        "cpu_workers_s": conditions.cpu_seconds(pids) - theirs,
        "late_ms": 1e3 * max(late.wall, default=0.0),
        "late_99.9_ms": 1e3 * quantile(late.wall, 0.999),
        "late_own_cpu_ms": 1e3 * max(late.cpu, default=0.0),
        "collection_ms": 1e3 * max(late.collections, default=0.0),
    }
    failed = [episode.error for episode in episodes if episode.stop_reason.failed]
    if failed:
        raise RuntimeError(f"{len(failed)} episodes failed, the first one: {failed[0]}")
    return figures, digest_of(episodes)


def digest_of(episodes: list[Episode]) -> str:
    """Return a digest of what was played, without the times."""
    what = [[(turn.observation, turn.reward) for turn in one.turns] for one in episodes]
    return hashlib.sha256(repr(what).encode()).hexdigest()


def recipe_of(backend: str, env: dict[str, Any], seed: int) -> Recipe:
    workers: dict[str, Any] = {"backend": backend}
    if backend == "process":
        workers["number"] = WORKERS
    table = {"name": "heavy", "env": [env], "workers": workers, "seed": seed}
    return recipe_from_dict(table)


class Others:
    """Processes that play the episodes of a case inline, each an equal part; see `serve_part`."""

    def __init__(self, name: str, parts: int) -> None:
        command = [sys.executable, __file__, "--case", name, "--part"]
        pipe = subprocess.PIPE
        self._processes = [
            subprocess.Popen([*command, str(part), str(parts)], stdin=pipe, stdout=pipe, text=True)
            for part in range(parts)
        ]

    def play(self, seed: int, count: int) -> tuple[dict[str, float], list[str]]:
        """Play a round; return its figures, and a digest of what each process played."""
        pids = [process.pid for process in self._processes]
        cpu = conditions.cpu_seconds(pids)
        began = time.perf_counter()
        for process in self._processes:
            pipe_of(process.stdin).write(f"{seed} {count}\n")
            pipe_of(process.stdin).flush()
        digests = [pipe_of(process.stdout).readline().strip() for process in self._processes]
        wall = time.perf_counter() - began
        if not all(digests):
            raise RuntimeError("A process that plays inline has ended.")
        return {"wall_s": wall, "cpu_own_s": conditions.cpu_seconds(pids) - cpu}, digests

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.communicate()


def pipe_of(pipe: IO[str] | None) -> IO[str]:
    """Return a pipe that is known to be there."""
    if pipe is None:
        raise RuntimeError("The process has no pipe.")
    return pipe


def serve_part(name: str, part: int, parts: int) -> None:
    """Play every so manyth episode of the rounds that standard input asks for."""
    env, _, answer = CASES[name]
    for line in sys.stdin:
        seed, count = map(int, line.split())
        recipe = recipe_of("inline", env, seed)
        print(rollout(recipe, range(part, count, parts), answer)[1], flush=True)


def case(name: str, rounds: int) -> dict[str, Any]:
    """Play one case on all sides alternately; return all rounds and the ratios."""
    env, count, answer = CASES[name]
    inline, halves = Others(name, 1), Others(name, WORKERS)
    seen: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for seed in range(rounds + 1):
        many = count if seed else max(8, count // 10)  # the first round imports modules
        figures, digests = inline.play(seed, many)
        seen["inline"].append(figures)
        figures, digest = rollout(recipe_of("process", env, seed), range(many), answer)
        seen["process"].append(figures)
        if digests != [digest]:
            raise RuntimeError(f"{name}: the backends played different episodes.")
        seen["halves"].append(halves.play(seed, many)[0])
    inline.close()
    halves.close()
    return summary(count, {side: played[1:] for side, played in seen.items()})


def summary(count: int, seen: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Return what the rounds of a case amount to."""
    best = {side: min(one["wall_s"] for one in seen[side]) for side in SIDES}
    figures: dict[str, Any] = {
        "episodes": count,
        "best_wall_s": best,
        "ratio": best["process"] / best["inline"],
        "ratio_of_halves": best["halves"] / best["inline"],
        "cpu_s": {
            "inline": min(one["cpu_own_s"] for one in seen["inline"]),
            "process_own": min(one["cpu_own_s"] for one in seen["process"]),
            "process_workers": min(one["cpu_workers_s"] for one in seen["process"]),
        },
    }
    for name in ("late_ms", "late_99.9_ms", "late_own_cpu_ms", "collection_ms"):
        figures[name] = max(one[name] for one in seen["process"])
    print(figures, file=sys.stderr)
    return {**figures, "rounds": seen}


def quantile(values: list[float], share: float) -> float:
    """Return a quantile; 0 without values."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--case", choices=list(CASES), action="append")
    parser.add_argument("--part", type=int, nargs=2, help=argparse.SUPPRESS)
    provenance.add_option(parser)
    options = parser.parse_args()
    register(heavy_envs.ID, "heavy_envs:Algebra")
    if options.part is not None:
        serve_part(options.case[0], *options.part)
        return
    provenance.check_option(parser, options)
    before = conditions.begin(["sympy", "reasoning-gym"])
    figures = {name: case(name, options.rounds) for name in options.case or CASES}
    conditions.write(RESULT, before, figures)


if __name__ == "__main__":
    main()
