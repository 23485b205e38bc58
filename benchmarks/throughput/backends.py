"""What a turn costs where its environment lives: inline, threads, processes, a server.

    python benchmarks/throughput/backends.py

Plays the same episodes of a game that costs next to nothing in every backend, round by round in one
run. What differs is the way to the environment and back. The result is ``backends.json`` beside
this file.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import conditions

from gem_core.episodes.data import Completion
from gem_core.episodes.rollout import Request, play_many
from gem_core.runs import provenance
from gem_core.runs.environments import pools as run_pools
from gem_core.runs.recipe.load import recipe_from_dict
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.tasks import MachineFactory

HERE = Path(__file__).resolve().parent
RESULT = HERE / "backends.json"
GAME = {"id": "game:GuessTheNumber-v0-hard"}
TOKEN = "GEM_CORE_SERVER_TOKEN"
PATIENCE_S = 60
ACTION = "\\boxed{1}"


class Repeats:
    """A policy that answers at once, and always the same."""

    async def complete(self, request: Request) -> Completion:
        return Completion([], text=ACTION)


def recipe_of(backend: str, address: str) -> Recipe:
    """Return a recipe whose environments live in ``backend``."""
    workers: dict[str, Any] = {"backend": backend}
    if backend == "server":
        workers["address"] = address
    elif backend == "process":
        workers["number"] = 2
    return recipe_from_dict({"name": backend, "env": [GAME], "workers": workers})


@contextmanager
def serving() -> Iterator[str]:
    """Run ``gem-core serve`` with a token of its own; yield its address."""
    os.environ[TOKEN] = secrets.token_urlsafe()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "gem_core.cli", "serve", "--port", str(port)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        wait_until_up(process, address)
        yield address
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def wait_until_up(process: subprocess.Popen[bytes], address: str) -> None:
    """Return when the server answers."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.05)
    raise SystemExit(f"the server did not start (exit code {process.poll()})")


def played(factory: MachineFactory, first: int, count: int) -> tuple[float, float, int, list[str]]:
    """Play a batch; return wall seconds, CPU seconds of this process, turns and what was seen."""
    machines = [factory.train(index) for index in range(first, first + count)]
    wall, own = time.perf_counter(), time.process_time()
    episodes = asyncio.run(play_many(machines, Repeats(), concurrency=count))
    wall, own = time.perf_counter() - wall, time.process_time() - own
    seen = [turn.observation for episode in episodes for turn in episode.turns]
    failed = [episode.error for episode in episodes if episode.error]
    assert not failed, failed
    return wall, own, len(seen), seen


def measure(count: int, rounds: int) -> dict[str, Any]:
    """Return medians over the rounds, per turn."""
    with serving() as address:
        names = ("inline", "thread", "process", "server")
        factories = {name: MachineFactory(recipe_of(name, address)) for name in names}
        for factory in factories.values():  # starts workers, imports, opens connections
            played(factory, 0, count)
        rows: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
        for number in range(1, rounds + 1):
            expected: list[str] = []
            for name in names:
                wall, own, turns, seen = played(factories[name], number * count, count)
                rows[name].append((wall / turns, own / turns))
                expected = expected or seen
                assert seen == expected, f"{name} plays other episodes"
        run_pools.close_run_pools(None)
    return {
        "episodes": count,
        "rounds": rounds,
        "game": GAME["id"],
        "per_turn_us": {
            name: {
                "wall": 1e6 * statistics.median(wall for wall, _ in pairs),
                "own_cpu": 1e6 * statistics.median(own for _, own in pairs),
            }
            for name, pairs in rows.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=256, help="played at a time")
    parser.add_argument("--rounds", type=int, default=9)
    provenance.add_option(parser)
    options = parser.parse_args()
    provenance.check_option(parser, options)
    before = conditions.begin(("websockets", "uvicorn", "starlette"))
    conditions.write(RESULT, before, measure(options.episodes, options.rounds))


if __name__ == "__main__":
    main()
