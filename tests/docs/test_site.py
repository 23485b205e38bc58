"""The site: navigation, links, generated pages, and the names of the Python interface."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import gem_core

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import check_site  # noqa: E402
import release  # noqa: E402
import stage_site  # noqa: E402

API = ROOT / "docs" / "api"
LINKS = "[a](b.md#part) ![p](p.png) [code](x.py) `[no](b.md)` [far](https://a.example/b.md)\n"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a small checkout with the pages `docs/a.md` and `docs/b.md`."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text(LINKS)
    for name in ("b.md", "p.png", "x.py"):
        (tmp_path / "docs" / name).write_text("## Part\n")
    for name, path in (("ROOT", tmp_path), ("TARGET", tmp_path / "build")):
        monkeypatch.setattr(stage_site, name, path)
    return tmp_path


def text_of_a() -> str:
    pages = stage_site.places()
    (source,) = (path for path in pages if path.name == "a.md")
    return stage_site.staged(source, pages)


def test_every_page_has_one_place_in_the_navigation_and_its_links_lead_somewhere() -> None:
    pages = stage_site.places()
    stage_site.check_navigation(set(pages.values()))
    for source in pages:
        stage_site.staged(source, pages)
        assert all(picture.is_file() for picture in stage_site.pictures(source))


def test_a_page_without_a_place_and_a_place_without_a_page_are_found() -> None:
    pages = set(stage_site.places().values())
    with pytest.raises(SystemExit, match=r"new\.md is not in it; faq\.md does not exist"):
        stage_site.check_navigation((pages | {"new.md"}) - {"faq.md"})


def test_links_become_those_of_the_site(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = "[a](b.md#part) ![p](pictures/docs-p.png) code (`docs/x.py`) `[no](b.md)`"
    assert text_of_a().startswith(shown + " [far](https://a.example/b.md)")
    monkeypatch.setattr(release, "REPOSITORY", "https://r.example/r")
    assert "[code](https://r.example/r/blob/main/docs/x.py)" in text_of_a()
    (checkout / "docs" / "b.md").unlink()
    with pytest.raises(SystemExit, match=r"docs/a\.md: b\.md#part does not exist"):
        text_of_a()


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('<a href="b.html#part">', None),
        ('<a href="b.html#nothing">', "is no part of that page"),
        ('<a href="c.html">', "is no file of the site"),
        ('<a href="https://a.example/">', None),
        ('<script src="https://a.example/x.js"></script>', "from another machine"),
        ('<link rel="stylesheet" href="//a.example/x.css">', "from another machine"),
        ('<img src="p.png">', "is no file of the site"),
    ],
)
def test_wrong_links_of_the_built_site_are_found(
    tmp_path: Path, body: str, problem: str | None
) -> None:
    (tmp_path / "a.html").write_text(body)
    (tmp_path / "b.html").write_text('<h2 id="part">')
    found = [*check_site.problems(tmp_path)]
    assert len(found) == (problem is not None), found
    assert problem is None or problem in found[0]


def test_every_public_name_is_on_a_page_of_the_interface() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in sorted(API.glob("*.md")))
    listed = {name.rpartition(".")[2] for name in re.findall(r"^::: (\S+)$", text, re.MULTILINE)}
    assert set(gem_core.__all__) - {"__version__"} <= listed


@pytest.mark.parametrize("script", ["paper_index.py", "concept_pictures.py", "notebook.py"])
def test_what_is_generated_is_up_to_date(script: str) -> None:
    command = [sys.executable, str(ROOT / "scripts" / script), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
