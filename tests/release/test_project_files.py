"""The files around the code: workflows call make targets that exist, versions are the same."""

from __future__ import annotations

import re
import shutil
import sys
from itertools import product
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import release  # noqa: E402

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PAGES = [ROOT / "CONTRIBUTING.md", ROOT / "docs" / "release.md", ROOT / "README.md"]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
LISTS = dict(re.findall(r"^([A-Z_]+) := ([^\n]*)$", MAKEFILE, flags=re.MULTILINE))
LISTS["TRAINERS"] = LISTS["ALL_TRAINERS"]


def targets() -> set[str]:
    """Return the targets of the Makefile, those of a pattern over a list each by its name."""

    def each(found: re.Match[str]) -> str:
        return " ".join(found[2].replace("%", one) for one in LISTS.get(found[1], "").split())

    text = re.sub(r"\$\((\w+):%=([\w%.-]+)\)", each, MAKEFILE)
    heads = re.findall(r"^([a-z][^:=\n]*):(?!=)", text, flags=re.MULTILINE)
    return {name for head in heads for name in head.split()}


def commands(path: Path) -> list[str]:
    """Return every shell line of a workflow, once for each value of its matrix."""
    lines = []
    for job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values():
        matrix = job.get("strategy", {}).get("matrix", {})
        for values in product(*matrix.values()):
            for step in job["steps"]:
                text = step.get("run", "")
                for name, value in zip(matrix, values, strict=True):
                    text = text.replace(f"${{{{ matrix.{name} }}}}", str(value))
                lines += text.splitlines()
    return lines


def made(line: str) -> list[str]:
    """Return the targets of a line that calls make; variables are left out."""
    words = re.sub(r"\$\{\{.*?\}\}", "", line).split("#")[0].split()
    if words[:1] != ["make"]:
        return []
    return [word for word in words[1:] if re.fullmatch(r"[a-z][a-z0-9.-]*", word)]


def called() -> set[str]:
    """Return every target that a workflow calls."""
    return {name for path in WORKFLOWS for line in commands(path) for name in made(line)}


def test_every_target_that_a_workflow_calls_exists() -> None:
    assert len(WORKFLOWS) == 3
    assert called() <= targets()


def test_the_workflows_call_what_a_change_must_pass() -> None:
    trainers = {f"test-{name}" for name in LISTS["ALL_TRAINERS"].split()}
    pythons = {f"test-python-{version}" for version in LISTS["PYTHONS"].split()}
    assert trainers | pythons <= called()
    assert {"lint", "types", "test-core", "doctest", "check-docs", "docs", "test-wheel"} <= called()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_is_whole_and_has_few_rights(path: Path) -> None:
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert data[True]  # YAML reads the key `on` so
    assert data["permissions"] == {"contents": "read"}
    for name, job in data["jobs"].items():
        assert job["runs-on"] == "ubuntu-latest" and job["steps"], name
        assert job.get("permissions", {}) in ({}, {"id-token": "write"})
        assert "${{" not in "".join(commands(path)).replace("${{ github.ref_name }}", "")


def test_the_weekly_run_blocks_nothing_and_a_tag_publishes_only_by_the_switch() -> None:
    weekly, tag = (
        yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())["jobs"]
        for name in ("weekly", "release")
    )
    assert all(job["continue-on-error"] is True for job in weekly.values())
    assert tag["publish"]["if"] == "vars.PUBLISH == 'true'"
    assert tag["publish"]["needs"] == "build"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_target_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    quoted = re.findall(r"`(make [^`]+)`", text)
    quoted += [line for line in text.splitlines() if line.startswith("make ")]
    named = {name for line in quoted for name in made(line)}
    assert named and named <= targets()


def test_a_target_that_does_not_exist_is_found() -> None:
    assert made("make lint types TAG=v1  # and") == ["lint", "types"]
    assert {"test-trl", "env-python-3.12", "test-python-3.10", "dist"} <= targets()
    assert "test-jax" not in targets() and "TRAINERS" not in targets()


def test_the_checkout_is_one_version_with_its_addresses() -> None:
    assert release.problems(ROOT) == []
    for path, text in release.addressed(ROOT, release.REPOSITORY).items():
        assert path.read_text(encoding="utf-8") == text
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert ("[project.urls]" in text) == bool(release.REPOSITORY)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors", "version"} <= set(citation)


def test_one_switch_gives_the_project_its_addresses() -> None:
    home = "https://code.example/gem/core"
    once = {path.name: text for path, text in release.addressed(ROOT, home).items()}
    assert f'Source = "{home}"' in once["pyproject.toml"]
    assert yaml.safe_load(once["CITATION.cff"])["repository-code"] == home
    links = re.findall(r"\]\(([^)]+)\)", once["README.md"])
    assert len(links) > 20 and all(link.startswith("https://") for link in links)
    inside = [link.removeprefix(f"{home}/") for link in links if link.startswith(home)]
    paths = [re.sub(r"^(blob|raw)/main/|#.*$", "", link) for link in inside]
    assert not [path for path in paths if not (ROOT / path).exists()]
    assert sum(link.startswith("raw/") for link in inside) == once["README.md"].count("![")
    assert release.with_absolute_links(once["README.md"], home) == once["README.md"]
    assert release.with_code(once["CITATION.cff"], home) == once["CITATION.cff"]


def test_what_keeps_a_checkout_from_being_a_release_is_said(tmp_path: Path) -> None:
    for name in (*release.VERSIONS, "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    version = release.versions(ROOT)["pyproject.toml"]
    assert "the tag must be v" in release.problems(tmp_path, "v9.9")[0]
    changes = tmp_path / "CHANGELOG.md"
    changes.write_text("# Changelog\n\n## Unreleased\n")
    (unchanged,) = release.problems(tmp_path, f"v{version}")
    assert unchanged.startswith(f"CHANGELOG.md has no section '## {version} - ")
    changes.write_text(f"# Changelog\n\n## {version} - 2030-01-31\n")
    assert release.problems(tmp_path, f"v{version}") == []
    citation = tmp_path / "CITATION.cff"
    citation.write_text(citation.read_text().replace(version, "0.0.9"))
    (other,) = release.problems(tmp_path)
    assert other.startswith("CITATION.cff has version 0.0.9")
