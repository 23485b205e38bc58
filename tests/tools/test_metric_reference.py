"""docs/metrics.md agrees with the table of metrics."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gem_conform.metric_names import COMMON, METRICS, undefined
from gem_core.episodes.metrics import episode_metrics
from gem_parity.frozen import frozen_episodes

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_up_to_date():
    command = [sys.executable, "scripts/metric_reference.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_metric_of_episodes_is_defined():
    names = episode_metrics(frozen_episodes(4)).keys()
    assert undefined(names) == []
    assert {name for name in names if not name.startswith(("stop/", "env/"))} <= COMMON
    assert undefined(["reward/mean", "typo"]) == ["typo"]
    assert METRICS.keys() > COMMON
