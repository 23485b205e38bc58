"""ReBN of a million turns, compared with a loop over the turns and with passes over the returns.

    .venvs/core/bin/python benchmarks/advantages/run.py

ReBN and the loop compute the same digits (checked here). A pass is mean and deviation of the
returns: NumPy's, which adds in the fastest order, and `moments`, which adds in the order of the
turns, as ReBN does. Times are the best of several, taken in turns, in milliseconds: wall time, and
the processor's time, which other programs of a busy machine change less. The result is written to
the directory of this file.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gem_core.advantages import (
    TurnBatch,
    compute_advantages,
    discounted_returns,
    moments,
    normalise,
)
from gem_core.runs import provenance
from gem_core.runs.hardware import describe_machine

RESULT = Path(__file__).resolve().with_name("result.json")
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


def times_of(calls: dict[str, Callable[[], object]]) -> dict[str, dict[str, float]]:
    """Return the best wall and processor time of each call, in milliseconds."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            wall, processor = time.perf_counter(), time.process_time()
            call()
            processor = time.process_time() - processor
            found[name].append((1e3 * (time.perf_counter() - wall), 1e3 * processor))
    best = {
        name: [min(column) for column in zip(*rows, strict=True)] for name, rows in found.items()
    }
    return {
        "wall_ms": {name: round(wall, 1) for name, (wall, _) in best.items()},
        "processor_ms": {name: round(own, 1) for name, (_, own) in best.items()},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    provenance.add_option(parser)
    provenance.check_option(parser, parser.parse_args())
    machine = describe_machine()
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, LONGEST + 1, size=TURNS // (LONGEST // 2))
    episode = np.repeat(np.arange(lengths.size), lengths)[:TURNS]
    batch = TurnBatch(rng.normal(size=episode.size), episode)
    if not np.array_equal(compute_advantages("rebn", batch, gamma=GAMMA), by_loop(batch)):
        print("The digits differ.")
        return 1
    returns = discounted_returns(batch, GAMMA)
    times = times_of(
        {
            "rebn": lambda: compute_advantages("rebn", batch, gamma=GAMMA),
            "loop": lambda: by_loop(batch),
            "numpy_pass": lambda: (returns.mean(), returns.std()),
            "moments": lambda: moments(returns),
        }
    )
    own = times["processor_ms"]
    result = {
        "turns": len(batch),
        **times,
        "rebn_over": {
            name: round(own["rebn"] / own[name], 2) for name in ("loop", "numpy_pass", "moments")
        },
        **{key: machine[key] for key in ("commit", "versions", "python", "processor", "cores")},
    }
    text = json.dumps(result, indent=1) + "\n"
    RESULT.write_text(text, encoding="utf-8")
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
