"""The page of the laboratory is what its committed results give."""

from __future__ import annotations

import filecmp
import sys

import pytest

from .conftest import FOLDER


@pytest.fixture
def pages(monkeypatch):
    """The laboratory's ``page`` module; other benchmarks have modules of this name."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.delitem(sys.modules, "page", raising=False)
    import page

    yield page
    sys.modules.pop("page", None)


def test_the_page_and_its_picture_are_made_from_the_results(pages, tmp_path):
    assert pages.page(FOLDER / "results") == pages.PAGE.read_text(encoding="utf-8")
    again = pages.draw(FOLDER / "results", tmp_path / "again.png")
    assert filecmp.cmp(again, pages.PICTURE, shallow=False)
