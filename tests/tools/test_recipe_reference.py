"""docs/recipes.md agrees with the schema, which documents every key, and with the adapters."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("trainer", ["oat", "openrlhf", "rl2", "trl", "verl"])
def test_the_page_has_every_key_that_a_trainer_refuses(trainer):
    refused = import_module(f"gem_{trainer}.key_table").TABLE.refused
    page = PAGE.read_text(encoding="utf-8")
    assert page.count(f"\n| {trainer} | `") == len(refused) > 0
