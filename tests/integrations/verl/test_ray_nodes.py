"""Environment workers on two nodes of a Ray cluster, of which one ends in the middle of a rollout.

The other tests of workers on Ray are those of `tests/workers`, run with this trainer.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "workers" / "two_nodes.py"


def test_a_node_that_ends_costs_the_calls_it_was_running():
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], capture_output=True, text=True, timeout=300
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert done.returncode == 0 and lines, done.stdout[-2000:] + done.stderr[-4000:]
    told = json.loads(lines[-1].removeprefix("RESULT "))
    theirs, ours = told["nodes"]
    assert theirs >= 1 and ours >= 1 and theirs + ours == 4
    assert told["before"] == {"terminated": 40}
    # Every episode has its end; those of the node's calls say why, the others were not touched.
    assert sum(told["reasons"].values()) == 200
    assert set(told["reasons"]) == {"terminated", "env_error"}
    assert 1 <= told["reasons"]["env_error"] <= 50 == told["concurrency"]
    assert sum(told["errors"].values()) == told["reasons"]["env_error"]
    assert all("WorkerDiedError" in error for error in told["errors"])
    assert told["restarts"] >= theirs and told["workers"] == 4
    assert told["left"] == told["after"] == []
