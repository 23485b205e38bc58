"""docs/baselines.md agrees with the suite, its recipes and the committed figures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gem_core.training.suite import load_suite

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "baselines.md"


def test_the_page_is_up_to_date():
    command = [sys.executable, "tools/baseline_reference.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_baseline_has_a_line_of_scores():
    scores = PAGE.read_text(encoding="utf-8").partition("## The tiny profile")[2]
    for baseline in load_suite():
        assert f"| `{baseline.name}` |" in scores
