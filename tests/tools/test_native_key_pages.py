"""docs/native_keys agrees with the adapters' tables, and has every key that is not the core's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gem_adapters.key_table import KeyTable, copied, fixed
from gem_adapters.native_keys import core_keys
from gem_core.runs.recipe.recipe import recipe_keys

ROOT = Path(__file__).resolve().parents[2]


def test_the_pages_are_up_to_date():
    command = [sys.executable, "scripts/native_key_pages.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("trainer", ["oat", "openrlhf", "rl2", "trl", "verl"])
def test_a_page_has_a_line_for_every_recipe_key(trainer):
    page = (ROOT / "docs" / "native_keys" / f"{trainer}.md").read_text(encoding="utf-8")
    table = page.partition("\n## ")[0]
    missing = [key for key in recipe_keys() if f"\n| `{key}` | " not in table]
    assert set(missing) <= core_keys()


def test_a_page_shows_names_values_and_reasons(load_tool):
    table = KeyTable(copied("algorithm.lr", "+optim.lr critic.lr"), fixed("mode", None, "a | b"))
    page = load_tool("native_key_pages").page("verl", table)
    assert "| `algorithm.lr` | `optim.lr`, `critic.lr` | copied |" in page
    assert "| `mode` | `null` | a \\| b |" in page
