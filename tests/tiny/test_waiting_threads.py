"""OpenMP, as torch loads it, accepts the spin setting of a run on a CPU."""

from __future__ import annotations

import os
import subprocess
import sys

CHILD = """
import sys
import gem_core.training.experiment
from gem_core.training.threads import limit_openmp_spin
assert "torch" not in sys.modules, "too late: OpenMP has read its settings"
if "briefly" in sys.argv:
    limit_openmp_spin()
import torch
"""


def openmp_says(*arguments: str) -> str:
    own = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    environ = {k: v for k, v in os.environ.items() if k not in own}
    environ["OMP_DISPLAY_ENV"] = "VERBOSE"
    command = [sys.executable, "-c", CHILD, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environ).stderr


def test_openmp_spins_briefly_after_it_is_set() -> None:
    assert "GOMP_SPINCOUNT = '20000'" in openmp_says("briefly")
    assert "GOMP_SPINCOUNT = '20000'" not in openmp_says()
