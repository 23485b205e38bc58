"""``benchmarks/gpu_memory`` with the installed TRL: its update on a small model without data."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks" / "gpu_memory"
PROGRAM = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from gem_preflight.shapes import QWEN3, Shape
QWEN3["Qwen3-0.6B"] = Shape(64, 2, 4, 2, 16, 128, 1024, True)
print(QWEN3["Qwen3-0.6B"].parameters)
import one
one.main()
"""


def test_ddp_keeps_weights_gradients_and_states_whole():
    case = ["trl", "Qwen3-0.6B", "8", "512"]
    command = [sys.executable, "-c", PROGRAM, str(FOLDER), *case]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    weights, found = int(lines[0]), json.loads(lines[-1])
    assert found["kinds"]["weights"] == found["kinds"]["gradients"] == 4 * weights
    assert found["kinds"]["optimizer"] >= 8 * weights
    assert found["peak"] > 16 * weights
