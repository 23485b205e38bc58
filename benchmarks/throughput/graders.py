"""Milliseconds per mathematical answer: gem-core, math-verify alone, gem-llm 0.1.0.

    python benchmarks/throughput/graders.py --gem-python PYTHON_WITH_GEM_LLM

All graders grade the same pairs (``math_pairs.jsonl``) alternately, so that a busy machine affects
all of them equally; the ratio is the result. CPU time includes worker processes. No verdict and no
parsed expression is kept between rounds. A warm-up round for imports and worker starts does not
count. Writes ``graders.json`` beside this file.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import subprocess
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import mean, median
from typing import Any

import conditions
import numpy as np

from gem_core.envs.graders.pool import get_pool
from gem_core.runs import provenance

HERE = Path(__file__).resolve().parent
PAIRS = [json.loads(line) for line in (HERE / "math_pairs.jsonl").read_text().splitlines()]

GEM = """
import json, sys, time
from gem.utils.math_grader import boxed_reward_fn
pairs = json.load(sys.stdin)
def judge():
    right = []
    for answer, gold in pairs:
        right.append(bool(boxed_reward_fn(f"\\\\boxed{{{answer}}}", gold, fast=False)[1]))
    return right
judge()
wall, cpu = time.perf_counter(), time.process_time()
right = judge()
json.dump({"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "right": right},
          sys.stdout)
"""


def gem_core_round() -> list[bool]:
    """Grade all pairs as environments do."""
    from gem_core.envs.graders import grade_math

    return [grade_math(p["answer"], p["gold"], deadline_s=60).correct for p in PAIRS]


def forget() -> None:
    """Clear the caches of the grader and its workers, which keep 512 parsed expressions each."""
    from gem_core.envs.graders import grade_math, math

    for n in range(600 * get_pool(math._WORKER).size):
        grade_math(f"|{n}q|", "|q|", deadline_s=60)
    math._verdict.cache_clear()


def each_ms() -> dict[str, float]:
    """Return quantiles of gem-core's wall milliseconds per pair."""
    from gem_core.envs.graders import grade_math

    forget()
    spent = []
    for pair in PAIRS:
        begun = time.perf_counter()
        grade_math(pair["answer"], pair["gold"], deadline_s=60)
        spent.append(1000 * (time.perf_counter() - begun))
    return {f"p{p}": round(float(np.percentile(spent, p)), 3) for p in (50, 90, 99, 100)}


def start_s() -> float:
    """Return the seconds from nothing to the first verdict: interpreter, imports, workers."""
    from gem_core.envs.graders import grade_math, math

    get_pool(math._WORKER).close()
    math._verdict.cache_clear()
    begun = time.perf_counter()
    grade_math("1", "2", deadline_s=60)
    return round(time.perf_counter() - begun, 3)


def math_verify_round() -> list[bool]:
    """Grade all pairs with math-verify alone, without its timeouts, in this process."""
    from math_verify import parse, verify

    @cache
    def parsed(text: str) -> Any:
        return parse(f"\\boxed{{{text}}}", parsing_timeout=None)

    return [
        bool(verify(parsed(p["gold"]), parsed(p["answer"]), timeout_seconds=None)) for p in PAIRS
    ]


def worker_seconds() -> float:
    """Return the CPU seconds of the processes of the grader's pool, all in one session."""
    from gem_core.envs.graders.math import _WORKER

    server = get_pool(_WORKER)._server
    if server is None:
        return 0.0
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == server._process.pid:
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(judge: Callable[[], list[bool]]) -> dict[str, Any]:
    """Run one round and return its times and verdicts."""
    cpu = cpu_seconds()
    wall = time.perf_counter()
    right = judge()
    return {"wall": time.perf_counter() - wall, "cpu": cpu_seconds() - cpu, "right": right}


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its workers."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime + worker_seconds()


def gem_llm_round(python: str) -> dict[str, Any]:
    """Grade all pairs with gem-llm in its own environment, after a warm-up round."""
    job = json.dumps([[p["answer"], p["gold"]] for p in PAIRS])
    done = subprocess.run(
        [python, "-W", "ignore", "-c", GEM], input=job, capture_output=True, text=True, check=True
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def summary(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the milliseconds per pair, and the number of verdicts that equal those of the file."""
    each = 1000 / len(PAIRS)
    same = sum(a == p["right"] for a, p in zip(rounds[-1]["right"], PAIRS, strict=True))
    return {
        "cpu_ms_mean": round(mean(r["cpu"] for r in rounds) * each, 4),
        "wall_ms_mean": round(mean(r["wall"] for r in rounds) * each, 4),
        "wall_ms_best": round(min(r["wall"] for r in rounds) * each, 4),
        "wall_ms_median": round(median(r["wall"] for r in rounds) * each, 4),
        "verdicts_equal_to_math_verify": same,
    }


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gem-python", help="python of an environment with gem-llm and pylatexenc")
    parser.add_argument("--rounds", type=int, default=3)
    provenance.add_option(parser)
    arguments = parser.parse_args()
    provenance.check_option(parser, arguments)
    begun = conditions.begin(["math-verify"])
    start = start_s()
    gem_core_round()
    math_verify_round()
    rounds: dict[str, list[dict[str, Any]]] = {"gem-core": [], "math-verify": []}
    for _ in range(arguments.rounds):
        forget()
        rounds["gem-core"].append(measure(gem_core_round))
        rounds["math-verify"].append(measure(math_verify_round))
        if arguments.gem_python:
            rounds.setdefault("gem-llm", []).append(gem_llm_round(arguments.gem_python))
    figures = {
        "pairs": len(PAIRS),
        "rounds": arguments.rounds,
        "graders": {name: summary(measured) for name, measured in rounds.items()},
        "gem_core_wall_ms": each_ms(),
        "gem_core_start_s": start,
    }
    conditions.write(HERE / "graders.json", begun, figures)


if __name__ == "__main__":
    main()
