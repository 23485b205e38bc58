"""docs/recipes.md agrees with the schema, which documents every key."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "recipes.md"


def test_the_page_is_up_to_date():
    command = [sys.executable, "scripts/recipe_reference.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_key_has_a_meaning():
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:3] == "| `"]
    assert len(rows) > 50
    assert [row for row in rows if not row.split("|")[4].strip()] == []
