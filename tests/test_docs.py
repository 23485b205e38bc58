"""What the pages name exists: relative links of docs and README, modules, and extras."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    *(path for path in sorted(ROOT.glob("*.md")) if path.name != "CHANGELOG.md"),
    *sorted((ROOT / "docs").rglob("*.md")),
]
SOURCES = (ROOT, ROOT / "integrations", ROOT / "benchmarks" / "parity" / "src")
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
MODULE = re.compile(r"\b(?:from|import) (gem_\w+(?:\.\w+)+)|`(gem_\w+(?:\.\w+)+)[`(:]")
ENTRY_POINTS = {
    f"gem_core.{group}"
    for group in (
        "trainers",
        "envs",
        "advantages",
        "commands",
        "sandboxes",
        "tools",
        "namespaces",
        "recipe_formats",
    )
}


def module_exists(name: str) -> bool:
    """Whether a dotted name is a module, or a name in the file of one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        for folder in SOURCES:
            path = folder.joinpath(*parts[:length])
            files = [
                file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()
            ]
            if files:
                rest = parts[length : length + 1]
                text = files[0].read_text(encoding="utf-8")
                return not rest or bool(re.search(rf"\b{rest[0]}\b", text))
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_and_modules_of_a_page_exist(page):
    text = page.read_text(encoding="utf-8")
    missing = [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    names = {first or second for first, second in MODULE.findall(text)} - ENTRY_POINTS
    missing += sorted(name for name in names if not module_exists(name))
    assert not missing


@pytest.mark.parametrize("name", ["gem_core.tiny", "gem_core.training.recipe.load_recipe"])
def test_a_name_of_a_module_that_moved_is_found(name):
    assert not module_exists(name)


def test_the_page_of_installation_lists_every_extra():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    table = project.split("[project.optional-dependencies]")[1].split("\n[")[0]
    extras = set(re.findall(r"^([\w-]+) = \[", table, flags=re.MULTILINE))
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert extras <= set(re.findall(r"^\| `?([\w-]+)`? \|", page, flags=re.MULTILINE))
