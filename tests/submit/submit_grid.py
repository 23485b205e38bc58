"""A grid whose trainer and whose Slurm are stand-ins; submitit is the real one."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gem_core.cli import main

GUESS = "guess-the-number-easy"


def until(condition: Callable[[], object], at_most_s: float = 60) -> None:
    """Wait until a condition holds."""
    ends = time.monotonic() + at_most_s
    while not condition():
        assert time.monotonic() < ends, f"it did not happen within {at_most_s} s"
        time.sleep(0.05)


class Grid(NamedTuple):
    """Cells of one recipe, trainer and profile; they differ by the seed."""

    out: Path
    behaviours: Path
    slurm: Path

    def behave(self, seed: int, behaviour: str) -> None:
        """Have the trainer of a cell do something else than finish."""
        (self.behaviours / f"seed{seed}").write_text(behaviour)

    def submit(
        self,
        *options: str,
        seeds: tuple[int, ...] = (0, 1),
        cluster: str = "slurm",
        recipe: str = GUESS,
    ) -> int:
        """Run the command; return its exit code."""
        words = ["submit", recipe, "--trainers", "trl", "--profile", "tiny", "--out", str(self.out)]
        words += ["--seeds", *map(str, seeds), "--cluster", cluster]
        return main([*words, *(["--time", "60"] if cluster == "slurm" else []), *options])

    def status(self) -> int:
        """Print the states of the cells."""
        return main(["submit", "--status", str(self.out)])

    def folder(self, seed: int) -> Path:
        """The run directory of a cell."""
        return self.out / GUESS / "trl" / "rebn" / f"seed{seed}"

    def starts(self, seed: int) -> list[dict[str, int]]:
        """The processes that worked on a cell."""
        path = self.folder(seed) / "starts.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def finished(self, seed: int) -> bool:
        """Whether a cell has a result."""
        return (self.folder(seed) / "result.json").exists()

    def trains(self, seed: int) -> bool:
        """Whether a cell's output says that it trains: then it takes signals."""
        log = self.folder(seed) / "log.txt"
        return log.exists() and "step 1 of 3" in log.read_text()

    def script(self, number: int = 100) -> str:
        """What sbatch was given."""
        return (self.slurm / f"{number}.sh").read_text()

    def kill_all(self) -> None:
        """End what a failed test may have left."""
        for path in self.out.glob("*/*/*/seed*/starts.jsonl"):
            for line in path.read_text().splitlines():
                for pid in json.loads(line).values():
                    with suppress(OSError):
                        command = Path(f"/proc/{pid}/cmdline").read_bytes()
                        if b"stand_in" in command or b"submitit" in command:
                            os.kill(pid, 9)
