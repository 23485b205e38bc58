"""ReBN of a million turns: the estimator compared with a loop over the turns, in one run.

    .venvs/core/bin/python benchmarks/advantages/run.py

Both compute the same digits (checked here). Times are the best of several, taken in turns. The
result is written to the directory of this file.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gem_core.advantages import TurnBatch, compute_advantages, normalise
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


def seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


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
    rebn, loop = [], []
    for _ in range(ROUNDS):
        rebn.append(seconds(lambda: compute_advantages("rebn", batch, gamma=GAMMA)))
        loop.append(seconds(lambda: by_loop(batch)))
    result = {
        "turns": len(batch),
        "rebn_ms": round(1e3 * min(rebn), 1),
        "loop_ms": round(1e3 * min(loop), 1),
        "ratio": round(min(loop) / min(rebn), 1),
        **{key: machine[key] for key in ("commit", "versions", "python", "processor", "cores")},
    }
    text = json.dumps(result, indent=1) + "\n"
    RESULT.write_text(text, encoding="utf-8")
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
