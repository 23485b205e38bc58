"""``benchmarks/gpu_memory`` with the installed OpenRLHF: a small model's update without data."""

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
QWEN3["Qwen3-0.6B"] = Shape(64, 2, 4, 2, 16, 128, 65536, True)
print(QWEN3["Qwen3-0.6B"].parameters)
import one
one.main()
"""
TOKENS, VOCABULARY = 4096, 65536


def test_zero_divides_the_states_and_a_pass_holds_no_logits_of_the_one_before():
    case = ["openrlhf", "Qwen3-0.6B", "8", str(TOKENS)]
    command = [sys.executable, "-c", PROGRAM, str(FOLDER), *case]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    weights, found = int(lines[0]), json.loads(lines[-1])
    assert 2 * weights <= found["kinds"]["weights"] < 2.1 * weights
    assert 12 * weights <= 8 * found["kinds"]["optimizer"] < 12.1 * weights
    # Float32 logits, their softmax, their gradient, and that in bfloat16; the rest is small.
    logits = 14 * TOKENS * VOCABULARY
    assert logits < found["peak"] < 1.1 * logits
