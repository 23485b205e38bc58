"""``benchmarks/gpu/run.py --cpu`` with real TRL: a result that could be sent back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def test_three_steps_make_a_whole_result(tmp_path):
    program = ROOT / "benchmarks" / "gpu" / "run.py"
    command = [sys.executable, str(program), "--cpu", "--trainers", "trl", "--allow-dirty"]
    command += ["--python", f"trl={sys.executable}", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=540)
    assert done.returncode == 0, done.stdout + done.stderr
    row = json.loads((tmp_path / "trl.json").read_text())
    assert (row["status"], row["steps"], row["exit"]) == ("trained", 3, 0)
    assert row["doctor"]["state"] == "ready on CPU (tiny profile, stand-in engine)"
    assert row["gpu"] is None and {"trl", "torch", "transformers"} <= row["versions"].keys()
    later = row["metrics"][1:]
    sampled = sum(step["tokens/action"] * step["episodes"] for step in later)
    played = sum(step["time/rollout"] for step in later)
    assert row["sampled_tokens_per_s"] == pytest.approx(sampled / played)
    assert 0 < row["engine_busy"] < 1
    assert row["trained_tokens_per_s"] > 0
    assert len(row["logprob_difference"]) == 3
    assert all(0 <= difference < 1e-4 for difference in row["logprob_difference"])
    assert row["rehearsal"] is True
    page = (tmp_path / "summary.md").read_text()
    assert "| trl | 1.16" in page and "**Rehearsal on a CPU, not a GPU result:" in page
    assert (tmp_path / "trl.log").stat().st_size > 0
