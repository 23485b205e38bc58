"""Under which conditions a benchmark of this folder ran: for its result file and its page."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from gem_core.runs import provenance


def begin(packages: Iterable[str] = ()) -> dict[str, Any]:
    """Return commit, versions, hardware and load at the beginning of a benchmark.

    Args:
        packages: distributions whose versions the figures depend on, besides numpy.
    """
    commit = provenance.commit()  # of the code that runs, not of a later one
    return {
        "commit": commit,
        "dirty": provenance.is_dirty(commit),
        "versions": {
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in ("gem-core", "numpy", *packages)},
        },
        "machine": f"{platform.machine()}, {platform.system()}",
        "cpus": usable_cpus(),
        "load_before": os.getloadavg()[0],
    }


def write(path: Path, conditions: dict[str, Any], figures: dict[str, Any]) -> None:
    """Write the result file of a benchmark, and print it."""
    result = {**conditions, "load_after": os.getloadavg()[0], "figures": figures}
    text = json.dumps(result, indent=1)
    # A list of numbers on one line.
    text = re.sub(r"\[[-\d.,\se]+\]", lambda match: " ".join(match[0].split()), text)
    path.write_text(text + "\n")
    print(text)


def described(result: dict[str, Any]) -> str:
    """Return the conditions of a result file as a sentence."""
    versions = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    loads = f"{result['load_before']:.1f} before and {result['load_after']:.1f} after"
    return (
        f"Commit {provenance.short(result['commit'])}; {result['machine']}, {result['cpus']} CPUs; "
        f"{versions}; load average {loads}."
    )


def usable_cpus() -> int:
    """Return the CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the CPU seconds that processes have used so far, their threads included."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
