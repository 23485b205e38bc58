"""What docs/design.md and docs/contracts.md name is where they say."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
import import_graph  # noqa: E402

MAP = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
FOLDERS = (ROOT, ROOT / "gem_core", ROOT / "integrations")
NAMED = re.compile(r"`([\w/]+(?:\.(?:py|toml|md)|/))(?:: (\w+))?`")
"""A file or folder in code marks, and perhaps a name in the file."""


def rows_of_the_core():
    """Return entry -> what its row says of it."""
    table = MAP.split("| entry of `gem_core/` |")[1].split("\n\n")[0]
    found = re.findall(r"^\| `([\w.]+)/?` \| (.*) \|$", table, flags=re.MULTILINE)
    return {name.removesuffix(".py"): text for name, text in found}


def test_the_map_has_every_entry_and_no_other():
    assert rows_of_the_core().keys() == import_graph.entries(ROOT / "gem_core")


@pytest.mark.parametrize("entry", sorted(import_graph.entries(ROOT / "gem_core")))
def test_what_a_row_names_is_in_its_entry(entry):
    for path, _ in NAMED.findall(rows_of_the_core()[entry]):
        assert (ROOT / "gem_core" / entry / path).exists(), path


@pytest.mark.parametrize("page", ["design.md", "contracts.md"])
def test_files_and_names_of_the_page_exist(page):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    named = [(path, name) for path, name in NAMED.findall(text) if "/" in path[:-1]]
    named = [(path, name) for path, name in named if "NAME" not in path]
    assert len(named) > 10
    for path, name in named:
        found = [folder / path for folder in FOLDERS if (folder / path).exists()]
        assert found, path
        assert not name or re.search(rf"\b{name}\b", found[0].read_text("utf-8")), (path, name)


def test_the_table_answers_the_questions_of_a_new_reader():
    table = MAP.split("## Where to find what")[1]
    for words in (
        "environment written and registered",
        "ReBN computed",
        "reward meet a token in verl",
        "keys does Oat refuse",
        "evaluation seeds come from",
        "sandbox back end added",
    ):
        (row,) = [line for line in table.splitlines() if words in line]
        assert NAMED.search(row), row
