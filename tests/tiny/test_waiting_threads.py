"""OpenMP, as torch loads it, takes the policy that a run on a CPU sets."""

from __future__ import annotations

import os
import subprocess
import sys

CHILD = """
import sys
import gem_core.experiment
from gem_core.threads import wait_passively
assert "torch" not in sys.modules, "too late: OpenMP has read its settings"
if "passively" in sys.argv:
    wait_passively()
import torch
"""


def openmp_says(*arguments: str) -> str:
    environ = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}
    environ["OMP_DISPLAY_ENV"] = "VERBOSE"
    command = [sys.executable, "-c", CHILD, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environ).stderr


def test_openmp_waits_passively_once_told() -> None:
    never_spins = "GOMP_SPINCOUNT = '0'"
    assert never_spins in openmp_says("passively")
    assert never_spins not in openmp_says()
