"""How busy an engine is while episodes with slow environments are played, with and without barrier.

    python benchmarks/throughput/rollout.py

The engine is simulated: ``SLOTS`` sequences at a time, a fixed number of tokens per second in each
(continuous batching); further requests queue. The number of tokens of a request and the time of
an environment's step have heavy tails (`waiting_envs`), decided by seeds, so that both loops play
the same episodes. `play_many` lets no episode wait for another. The lockstep loop is `play_batch`:
it waits in each turn for the slowest generation, then for the slowest environment. It plays as many
episodes at a time as `play_many` does (a fifth of them, for it is slow), and beside that all of
them at once.

An engine's busy share is the slot-seconds that its tokens need, divided by those that pass; what
is late in the loop counts as idle. It is given for the whole rollout and without its end, from
when fewer episodes remain than the engine has slots: no loop can fill it then. The result is
``rollout.json`` beside this file; `page.py` draws it.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import conditions
import waiting_envs

from gem_core.env.registration import register
from gem_core.episodes.data import Completion, Episode
from gem_core.episodes.rollout import Request, play_batch, play_many
from gem_core.runs import provenance
from gem_core.runs.recipe.load import recipe_from_dict
from gem_core.runs.tasks import MachineFactory

RESULT = Path(__file__).resolve().parent / "rollout.json"
SLOTS = 32
TOKENS_PER_S = 250.0
"""Of one slot."""
MEDIAN_TOKENS, SIGMA = 50, 0.7
IN_FLIGHT = 3 * SLOTS
"""Episodes at a time: those of the engine, and those that wait for an environment."""
PARTS = 100
"""Points of a curve in the result."""


class Engine:
    """A simulated engine; as a `Policy` and as a `BatchPolicy`.

    Attributes:
        spans: when each sequence was generated, in seconds since the beginning.
    """

    def __init__(self) -> None:
        self.spans: list[tuple[float, float]] = []
        self._began = time.perf_counter()
        self._slots: asyncio.Semaphore | None = None

    async def complete(self, request: Request) -> Completion:
        """Wait for a slot, then for the tokens."""
        if self._slots is None:
            self._slots = asyncio.Semaphore(SLOTS)
        async with self._slots:
            seconds = tokens_of(request) / TOKENS_PER_S
            began = time.perf_counter() - self._began
            await asyncio.sleep(seconds)
            self.spans.append((began, began + seconds))  # what is late counts as idle
        return Completion([], text="go on")

    def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
        """Generate a batch: as slots become free, the next sequences begin."""
        began = time.perf_counter() - self._began
        free_at = [began] * SLOTS
        for request in requests:
            slot = free_at.index(min(free_at))
            end = free_at[slot] + tokens_of(request) / TOKENS_PER_S
            self.spans.append((free_at[slot], end))
            free_at[slot] = end
        time.sleep(max(free_at) - began)
        return [Completion([], text="go on") for _ in requests]


def tokens_of(request: Request) -> int:
    """Return the tokens of a completion, which episode and turn decide."""
    rng = Random(f"{request.machine.seed} {request.machine.turn}")
    return max(1, round(MEDIAN_TOKENS * rng.lognormvariate(0.0, SIGMA)))


def played(loop: str, backend: str, count: int, at_a_time: int) -> dict[str, Any]:
    """Play ``count`` episodes with one loop; return its figures."""
    workers: dict[str, Any] = {"backend": backend}
    if backend == "process":
        workers["number"] = 2
    table = {"name": "rollout", "env": [{"id": waiting_envs.ID}], "workers": workers}
    factory = MachineFactory(recipe_from_dict(table))
    warm = [factory.train(-1 - index) for index in range(8)]  # starts workers and threads
    play_batch(warm, Engine())
    machines = [factory.train(index) for index in range(count)]
    engine = Engine()
    began, cpu = time.perf_counter(), time.process_time()
    if loop == "lockstep":
        parts = [machines[k : k + at_a_time] for k in range(0, count, at_a_time)]
        episodes = [episode for part in parts for episode in play_batch(part, engine)]
    else:
        episodes = asyncio.run(play_many(machines, engine, concurrency=at_a_time))
    seconds = time.perf_counter() - began
    require_complete(episodes)
    return {
        "seconds": seconds,
        "cpu_s": time.process_time() - cpu,
        "episodes": len(episodes),
        "requests": len(engine.spans),
        "busy": busy_share(engine.spans, 0.0, seconds),
        "busy_until_the_end": busy_share(engine.spans, 0.0, tail_begins(engine.spans)),
        "curve": curve(engine.spans, seconds),
    }


def require_complete(episodes: Sequence[Episode]) -> None:
    failed = [episode.error for episode in episodes if episode.stop_reason.failed]
    if failed:
        raise RuntimeError(f"{len(failed)} episodes failed, the first one: {failed[0]}")


def busy_share(spans: Sequence[tuple[float, float]], begins: float, ends: float) -> float:
    """Return the share of the slots' time in which tokens are made."""
    busy = sum(max(0.0, min(end, ends) - max(start, begins)) for start, end in spans)
    return busy / (SLOTS * (ends - begins))


def tail_begins(spans: Sequence[tuple[float, float]]) -> float:
    """Return when the last requests begin: as many as there are slots."""
    return sorted(start for start, _ in spans)[-min(SLOTS, len(spans))]


def curve(spans: Sequence[tuple[float, float]], seconds: float) -> list[float]:
    """Return the busy share in equal parts of the time."""
    edges = [seconds * part / PARTS for part in range(PARTS + 1)]
    return [round(busy_share(spans, begins, ends), 3) for begins, ends in pairwise(edges)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=2560)
    provenance.add_option(parser)
    options = parser.parse_args()
    provenance.check_option(parser, options)
    register(waiting_envs.ID, "waiting_envs:Waiting")
    before = conditions.begin()
    count = options.episodes
    sides = {
        "play_many, threads": ("play_many", "thread", count, IN_FLIGHT),
        "play_many, processes": ("play_many", "process", count, IN_FLIGHT),
        f"lockstep, {IN_FLIGHT} at a time": ("lockstep", "thread", count // 5, IN_FLIGHT),
        "lockstep, all at once": ("lockstep", "thread", count, count),
    }
    figures = {
        "slots": SLOTS,
        "in_flight": IN_FLIGHT,
        "tokens_per_s": TOKENS_PER_S,
        "median_tokens": MEDIAN_TOKENS,
        "median_env_ms": 1e3 * waiting_envs.MEDIAN_S,
        "loops": {name: played(*side) for name, side in sides.items()},
    }
    conditions.write(RESULT, before, figures)


if __name__ == "__main__":
    main()
