"""``benchmarks/gpu_memory`` with an installed trainer: its update on a small model without data."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks" / "gpu_memory"
PROGRAM = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from gem_preflight.shapes import QWEN3, Shape
QWEN3["Qwen3-0.6B"] = Shape(64, 2, 4, 2, 16, 128, int(sys.argv.pop(1)), True)
print(QWEN3["Qwen3-0.6B"].parameters)
import one
one.main()
"""


def run_update(trainer: str, tokens: int, vocabulary: int = 1024) -> tuple[int, dict[str, Any]]:
    """Run an update as one of 8 GPUs; return the model's weights, and what the benchmark found."""
    case = [str(vocabulary), trainer, "Qwen3-0.6B", "8", str(tokens)]
    command = [sys.executable, "-c", PROGRAM, str(FOLDER), *case]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    return int(lines[0]), json.loads(lines[-1])
