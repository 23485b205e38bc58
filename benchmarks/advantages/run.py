"""ReBN of a million turns: the estimator compared with a loop over the turns, in one run.

    .venvs/core/bin/python benchmarks/advantages/run.py

Both compute the same digits (checked here). Times are the best of several, taken in turns.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from gem_core.advantages import TurnBatch, compute_advantages, normalise

TURNS = 1_000_000
LONGEST = 20
GAMMA = 0.9
ROUNDS = 5


def by_loop(batch: TurnBatch) -> np.ndarray:
    returns = np.empty(len(batch))
    running = 0.0
    backwards = zip(batch.rewards[::-1].tolist(), batch.ends[::-1].tolist(), strict=True)
    for place, (reward, end) in enumerate(backwards):
        running = reward if end else reward + GAMMA * running
        returns[place] = running
    return normalise(returns[::-1].copy())


def seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def main() -> int:
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, LONGEST + 1, size=TURNS // (LONGEST // 2))
    episode = np.repeat(np.arange(lengths.size), lengths)[:TURNS]
    batch = TurnBatch(rng.normal(size=episode.size), episode)
    if not np.array_equal(compute_advantages("rebn", batch, gamma=GAMMA), by_loop(batch)):
        print("The digits differ.")
        return 1
    rebn, loop = [], []
    for _ in range(ROUNDS):
        rebn.append(seconds(lambda: compute_advantages("rebn", batch, gamma=GAMMA)))
        loop.append(seconds(lambda: by_loop(batch)))
    print(
        f"{len(batch)} turns: ReBN {1e3 * min(rebn):.0f} ms, with a loop {1e3 * min(loop):.0f} ms, "
        f"ratio {min(loop) / min(rebn):.1f}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
