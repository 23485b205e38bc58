"""Episodes with Python calls in `play_many`: hanging and crashing calls must not slow the others.

    python benchmarks/sandbox/episodes.py --calls 10000

Each episode calls the Python tool several times and then answers. In the second run 5 % of the
calls hang until their deadline and 5 % crash. Writes ``episodes.json``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

from gem_core.env.interface import Env
from gem_core.episodes.context import Context, Template
from gem_core.episodes.data import Completion, Episode
from gem_core.episodes.machine import EpisodeMachine
from gem_core.episodes.rollout import Request, play_many
from gem_core.runs import provenance
from gem_core.tools import Budget, ToolEnv
from gem_core.tools.python import PythonTool

HERE = Path(__file__).resolve().parent
CALLS = 10  # of an episode
DEADLINE = 1.0
HEALTHY = "<python>print(sum(range(100)))</python>"
FAULTS = {
    0: "<python>import time; time.sleep(60)</python>",
    1: "<python>import os; os.abort()</python>",
}
TEMPLATE = Template("plain", "<{observation}>", "[{observation}]", close="!")


class Bytes:
    """A tokenizer: id = byte + 1; 0 stops."""

    stop_ids = frozenset({0})

    def encode(self, text: str) -> list[int]:
        return [byte + 1 for byte in text.encode()]

    def decode(self, token_ids: list[int]) -> str:
        return bytes(i - 1 for i in token_ids if i > 0).decode(errors="replace")


class Once(Env):
    """Ends with the first action that is not a call."""

    fast = True

    def _reset(self, options: dict[str, Any] | None) -> tuple[str, dict[str, Any]]:
        return "go", {}

    def _step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "done", 1.0, True, False, {"success": True}


class Script:
    """A policy that calls the tool `CALLS` times and then answers."""

    def __init__(self, faulty: bool):
        self.faulty = faulty

    async def complete(self, request: Request) -> Completion:
        machine = request.machine
        turn = machine.turn
        seed = machine.seed_of_script
        kind = (seed * CALLS + turn) * 7 % 20 if self.faulty else 2
        text = FAULTS.get(kind, HEALTHY) if turn < CALLS else "answer"
        return Completion([*Bytes().encode(text), 0])


class Machine(EpisodeMachine):
    """An episode that knows which script it plays."""

    seed_of_script = 0


def play(episodes: int, concurrency: int, *, faulty: bool) -> tuple[list[Episode], float]:
    """Play episodes; return them and the wall seconds."""
    tool = PythonTool(seconds=DEADLINE, formats=("tag",))
    machines = []
    for number in range(episodes):
        env = ToolEnv(Once(), [tool], budget=Budget(calls=CALLS), instructions=False)
        machine = Machine(env, Context(TEMPLATE, Bytes()), seed=number)
        machine.seed_of_script = number
        machines.append(machine)
    started = time.monotonic()
    played = asyncio.run(play_many(machines, Script(faulty), concurrency=concurrency))
    return played, time.monotonic() - started


def summary(episodes: list[Episode], seconds: float) -> dict[str, Any]:
    """Return what happened to the calls and the episodes."""
    calls = [
        turn.info["tool"] for episode in episodes for turn in episode.turns if "tool" in turn.info
    ]
    healthy = sorted(call["seconds"] for call in calls if call["ok"])
    return {
        "calls": len(calls),
        "errors": dict(Counter(str(call["error"]) for call in calls)),
        "episodes": dict(Counter(episode.stop_reason.value for episode in episodes)),
        "wall_s": seconds,
        "healthy_p50_ms": 1000 * healthy[len(healthy) // 2],
        "healthy_p99_ms": 1000 * healthy[int(0.99 * len(healthy))],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--concurrency", type=int, default=16)
    provenance.add_option(parser)
    options = parser.parse_args()
    provenance.check_option(parser, options)
    count = options.calls // CALLS
    play(8, 8, faulty=False)
    result: dict[str, Any] = {"commit": provenance.commit(), "load": os.getloadavg()[0]}
    for name, faulty in (("without_faults", False), ("with_faults", True)):
        result[name] = summary(*play(count, options.concurrency, faulty=faulty))
    without, among = result["without_faults"], result["with_faults"]
    result["p99_ratio"] = among["healthy_p99_ms"] / without["healthy_p99_ms"]
    (HERE / "episodes.json").write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
