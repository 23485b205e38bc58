"""Throughput of the games: gem-core, gem-llm 0.1.0 and TextArena 0.7.4, in one run.

    python benchmarks/throughput/envs.py --peer-python VENV/bin/python
    python benchmarks/throughput/envs.py --create VENV     # first make that environment

Run it with the Python that has gem-core. The sides are measured alternately, round after round, so
that a busy machine affects all of them. ``envs.json`` and the table ``envs.md`` are written to the
directory of this file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from bisect import bisect
from pathlib import Path
from random import Random
from typing import Any

from envs_cases import CASES

from gem_core.runs import provenance

HERE = Path(__file__).parent
SIDES = ("gem-core", "gem-llm", "textarena")
PEERS = ["gem-llm==0.1.0", "textarena==0.7.4"]
PEERS_NEED = [
    "reasoning-gym", "nltk", "math-verify", "msgspec==0.19.0", "numpy", "fire", "httpx", "pandas",
    "requests", "websockets", "rich", "python-dotenv",
]  # fmt: skip
FEW_STEPS = {("gem-llm", "Sudoku"): 300, ("gem-llm", "WordSearch"): 1000}
"""Fewer steps for resets that take gem-llm seconds."""
STEPS = 4000
WHAT = (
    "One thread; the same random well-formed actions on every side, one episode after the other. "
    "Steps: mean wall time without outliers (over 1 ms or 20 medians); resets: CPU time. TextArena "
    "has no wrappers, and its step includes get_observation(). The NLTK corpora need a download: "
    "for the word games of gem-llm and TextArena, a stub provides gem-core's word lists, which is "
    "faster than the corpora."
)


class Worker:
    """One side in its own process."""

    def __init__(self, side: str, python: str):
        self.side = side
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [python, str(HERE / "envs_worker.py"), side],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )

    def ask(self, name: str, *arguments: Any) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps([name, *arguments]) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"{self.side} failed at {name}{arguments}")
        return json.loads(answer)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def create(directory: str) -> str:
    subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    python = str(Path(directory, "bin", "python"))
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", *PEERS], check=True)
    subprocess.run([python, "-m", "pip", "install", "-q", *PEERS_NEED], check=True)
    return python


def measure(workers: dict[str, Worker], rounds: int, budget: float) -> dict[str, Any]:
    """Measure the steps and resets per second of every family and side, round by round."""
    rates: dict[str, Any] = {
        case: {side: {"steps_per_s": [], "resets_per_s": []} for side in workers} for case in CASES
    }
    for _ in range(rounds):
        for case in CASES:
            for side, worker in workers.items():
                row = rates[case][side]
                count = FEW_STEPS.get((side, case), STEPS)
                row["steps_per_s"].append(worker.ask("steps_per_s", case, count, 10 * budget))
                env_id = CASES[case][0]
                row["resets_per_s"].append(worker.ask("resets_per_s", case, env_id, budget))
    return rates


def compare(rates: dict[str, Any]) -> dict[str, Any]:
    """Return the medians over the rounds, and the ratios of gem-core to the others."""
    table: dict[str, Any] = {}
    for case, sides in rates.items():
        row: dict[str, Any] = {"id": CASES[case][0]}
        for side, kinds in sides.items():
            for kind, values in kinds.items():
                row[f"{side} {kind}"] = round(statistics.median(values))
        for other in SIDES[1:]:
            if other in sides:
                # Both sides of a ratio are from one round.
                pairs = zip(
                    sides["gem-core"]["steps_per_s"], sides[other]["steps_per_s"], strict=True
                )
                row[f"steps / {other}"] = round(statistics.median(a / b for a, b in pairs), 2)
        table[case] = row
    return table


def goals(worker: Worker, memory: dict[str, float]) -> dict[str, Any]:
    """Return the figures of the goals for single games."""
    rates = {
        name: round(worker.ask("resets_per_s", case, env_id, 1.0))
        for name, case, env_id in (
            ("Sudoku-hard resets/s", "Sudoku", "game:Sudoku-v0-hard"),
            ("WordSearch-hard resets/s", "WordSearch", "game:WordSearch-v0-hard"),
        )
    }
    times = worker.ask("reset_ms", "Sokoban", "game:Sokoban-v0-hard", 300)
    return {
        **rates,
        "Sokoban-hard reset ms p50": round(statistics.median(times), 2),
        "Sokoban-hard reset ms p90": round(sorted(times)[270], 2),
        "KB per idle env, worst id": [max(memory, key=memory.__getitem__), max(memory.values())],
    }


def sokoban_difficulty(workers: dict[str, Worker], count: int) -> dict[str, Any]:
    """Return the lengths of the shortest solutions of rooms of both generators."""
    from gem_core.envs.players.sokoban import solve

    figures: dict[str, Any] = {}
    for env_id in ("game:Sokoban-v0-easy", "game:Sokoban-v0-hard"):
        both: list[list[int]] = []
        for side in ("gem-core", "gem-llm"):
            texts = workers[side].ask("rooms", env_id, count)
            rooms = ["\n".join(x for x in t.splitlines() if x.startswith("#")) for t in texts]
            moves = sorted(len(solve(room, most=300_000)) for room in rooms)
            both.append(moves)
            figures[f"{env_id}, {side}"] = {
                "rooms": count,
                "mean": round(statistics.fmean(moves), 1),
                "quartiles": statistics.quantiles(moves, n=4),
                "unsolved": moves.count(0),
            }
        gap, chance = same_distribution(*both)
        figures[f"{env_id}, gem-core"].update({"largest gap": gap, "p": chance})
    return figures


def same_distribution(ours: list[int], theirs: list[int], tries: int = 2000) -> tuple[float, float]:
    """Return the largest gap between two distribution functions, and the p-value of its size."""

    def gap(a: list[int], b: list[int]) -> float:
        a = sorted(a)
        b = sorted(b)
        return max(abs(bisect(a, v) / len(a) - bisect(b, v) / len(b)) for v in {*a, *b})

    rng = Random(0)
    pool = [*ours, *theirs]
    observed = gap(ours, theirs)
    larger = 0
    for _ in range(tries):
        rng.shuffle(pool)
        larger += gap(pool[: len(ours)], pool[len(ours) :]) >= observed - 1e-12
    return round(observed, 3), round(larger / tries, 3)


def versions(python: str, names: list[str]) -> dict[str, str]:
    code = (
        "import json, sys; from importlib.metadata import version; "
        f"print(json.dumps({{'python': sys.version.split()[0], "
        f"**{{n: version(n) for n in {names!r}}}}}))"
    )
    out = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return json.loads(out.stdout)


def table(result: dict[str, Any]) -> str:
    """Return the page of the result."""
    lines = [
        "# Throughput of the games",
        "",
        f"Written by `benchmarks/throughput/envs.py` from `envs.json`; {result['machine']}, commit "
        f"{provenance.short(result['commit'])}. {result['what']}",
        "",
        "| family | gem-core steps/s | gem-llm 0.1.0 | TextArena 0.7.4, raw | ratio to gem-llm | "
        "ratio to TextArena | gem-core resets/s | gem-llm | TextArena |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for case, row in result["families"].items():
        cells = [row[f"{side} steps_per_s"] for side in SIDES]
        ratios = [row[f"steps / {side}"] for side in SIDES[1:]]
        resets = [row[f"{side} resets_per_s"] for side in SIDES]
        cells_ = [f"{c:,}" for c in cells] + [f"{r}" for r in ratios] + [f"{c:,}" for c in resets]
        lines.append(f"| {case} | " + " | ".join(cells_) + " |")
    means = result["geometric mean of steps/s ratios"]
    ratios_text = ", ".join(f"{value} to {side}" for side, value in means.items())
    lines += ["", f"Geometric mean of the ratios: {ratios_text}."]
    lines += ["", "| goal | measured |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in result["goals"].items()]
    kilobytes = ", ".join(f"{env_id} {kb}" for env_id, kb in result["kilobytes per env"].items())
    lines += ["", f"KB per environment after one reset: {kilobytes}.", ""]
    if "sokoban difficulty" in result:
        head = "| rooms | n | mean | quartiles | unsolved | gap to gem-llm | p |"
        lines += ["Shortest solutions of Sokoban rooms, in moves:", "", head, "|---" * 7 + "|"]
        for name, row in result["sokoban difficulty"].items():
            quartiles = ", ".join(map(str, row["quartiles"]))
            lines.append(
                f"| {name} | {row['rooms']} | {row['mean']} | {quartiles} | {row['unsolved']} "
                f"| {row.get('largest gap', '')} | {row.get('p', '')} |"
            )
        lines += ["", "p: how often two samples of the same distribution differ by such a gap."]
        lines.append("")
    return "\n".join(lines)


def game_ids() -> list[str]:
    code = "import gem_core; print(*gem_core.list_envs('game:'))"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return out.stdout.split()


def kilobytes_of(worker: Worker, env_id: str) -> float:
    """Return the kilobytes of an environment after one reset."""
    count = 400 if "Sokoban" in env_id else 2000
    return round(worker.ask("kilobytes", "Sudoku", env_id, count), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--peer-python", help="a Python with gem-llm 0.1.0 and textarena 0.7.4")
    where.add_argument("--create", metavar="DIR", help="create a virtual environment with them")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--budget", type=float, default=0.15, help="CPU seconds per measurement")
    parser.add_argument("--rooms", type=int, default=60, help="Sokoban rooms to solve; 0: none")
    parser.add_argument("--out", type=Path, default=HERE / "envs.json")
    provenance.add_option(parser)
    args = parser.parse_args()
    provenance.check_option(parser, args)
    commit = provenance.commit()  # of the code that runs, not of a later one
    peer = args.peer_python or create(args.create)

    workers = {s: Worker(s, sys.executable if s == "gem-core" else peer) for s in SIDES}
    ours = workers["gem-core"]
    rows = compare(measure(workers, args.rounds, args.budget))
    memory = {env_id: kilobytes_of(ours, env_id) for env_id in game_ids()}
    result: dict[str, Any] = {
        "what": WHAT,
        "commit": commit,
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, {platform.system()}",
        "rounds": args.rounds,
        "versions": {
            "gem-core": versions(sys.executable, ["gem-core"]),
            "peers": versions(peer, ["gem-llm", "textarena", "nltk", "numpy"]),
        },
        "families": rows,
        "geometric mean of steps/s ratios": {
            side: round(statistics.geometric_mean(r[f"steps / {side}"] for r in rows.values()), 2)
            for side in SIDES[1:]
        },
        "goals": goals(ours, memory),
        "kilobytes per env": memory,
    }
    if args.rooms:
        result["sokoban difficulty"] = sokoban_difficulty(workers, args.rooms)
    for worker in workers.values():
        worker.close()
    args.out.write_text(json.dumps(result, indent=2) + "\n")
    args.out.with_suffix(".md").write_text(table(result))
    print(table(result))


if __name__ == "__main__":
    main()
