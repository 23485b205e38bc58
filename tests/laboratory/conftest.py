"""The laboratory's modules can be imported, and its small process is there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "laboratory"
sys.path.insert(0, str(FOLDER))


@pytest.fixture(scope="session")
def trajectories():
    """``trajectories(name)``: all trajectories of a process."""
    from exact import list_trajectories
    from processes import PROCESSES

    return lambda name: list_trajectories(PROCESSES[name])
