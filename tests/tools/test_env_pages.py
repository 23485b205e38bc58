"""The pages of the environments are what the tool would write."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_pages_are_not_stale() -> None:
    command = [sys.executable, str(ROOT / "tools" / "make_env_pages.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"run python tools/make_env_pages.py\n{done.stdout}{done.stderr}"
