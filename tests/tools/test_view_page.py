"""The page of the viewer's benchmark is what its result files give."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "view"


@pytest.fixture
def page(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    sys.modules.pop("page", None)  # of another benchmark
    yield import_module("page")
    sys.modules.pop("page", None)


def test_the_page_is_generated_from_the_results(page):
    assert page.PAGE.read_text(encoding="utf-8") == page.page(page.read())


def test_a_figure_of_each_file_is_on_the_page(page):
    results = page.read()
    results["formats"]["cells"][0][page.STORE]["mb"] = 987
    results["opening"]["cells"][1]["with_index"]["peak_memory_mb"] = 876
    results["browser"]["cells"][0] |= {"index": False, "first_rows_s": 7.654}
    text = page.page(results)
    assert f"| **{page.STORE}** |" in text and "| 987 MB |" in text
    assert "| 876 MB |" in text
    assert f"| {results['browser']['cells'][0]['episodes']:,}, without index | 7.65 s |" in text
