"""What a release has in its two files, built here from the checkout: neither needs the network."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path, PurePosixPath

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MAX_WHEEL, MAX_SDIST = 2_000_000, 3_000_000
"""Bytes of the files of a release."""
MAX_DEPENDENCIES = 4
"""Distributions that gem-core needs on Python 3.11 or newer; 3.10 has tomli besides."""
NOT_RELEASED = ("benchmarks", "tests", ".cache", ".ci", ".github", ".venvs", ".git")


def build(folder: Path, target: str, out: Path) -> Path:
    """Build one distribution of the project in ``folder``; return its file."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(out)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (file,) = out.iterdir()
    return file


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution."""
    return build(ROOT, "sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def unpacked(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project as somebody has it who downloads the source distribution."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder)
    (project,) = folder.iterdir()
    return project


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the checkout."""
    return build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


def names(wheel: Path) -> set[str]:
    """Return the paths in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def metadata(wheel: Path, file: str) -> str:
    """Return a file of the wheel's metadata."""
    with zipfile.ZipFile(wheel) as archive:
        (path,) = [n for n in archive.namelist() if n.endswith(f".dist-info/{file}")]
        return archive.read(path).decode()


def source_files(folder: Path) -> set[str]:
    """Return the files below a package of the checkout, as git would have them."""
    found = (p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return {p.relative_to(folder.parent).as_posix() for p in found}


def test_the_files_are_small(wheel: Path, sdist: Path) -> None:
    assert wheel.stat().st_size <= MAX_WHEEL
    assert sdist.stat().st_size <= MAX_SDIST


def test_the_wheel_has_every_file_of_every_package(wheel: Path) -> None:
    packages = [ROOT / "gem_core", *sorted((ROOT / "integrations").glob("gem_*"))]
    listed = {
        PurePosixPath(p).name
        for p in CONFIG["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    }
    assert listed == {package.name for package in packages}
    expected = set().union(*map(source_files, packages))
    assert {
        "gem_view/page/index.html",
        "gem_core/runs/install.toml",
        "gem_trl/py.typed",
    } <= expected
    assert expected <= names(wheel)


def test_the_wheel_has_the_recipes(wheel: Path) -> None:
    for folder in ("baselines", "bases", "profiles"):
        expected = {
            f"gem_core/_recipes/{path.relative_to(ROOT / 'recipes').as_posix()}"
            for path in (ROOT / "recipes" / folder).rglob("*.toml")
        }
        assert expected and expected <= names(wheel)
    assert "gem_core/_recipes/suite.toml" in names(wheel)


def test_the_wheel_has_nothing_else(wheel: Path) -> None:
    packages = {"gem_core", *(path.name for path in (ROOT / "integrations").glob("gem_*"))}
    tops = {PurePosixPath(name).parts[0] for name in names(wheel)}
    assert {top for top in tops if not top.endswith(".dist-info")} == packages
    assert not [name for name in names(wheel) if "__pycache__" in name or name.endswith(".pyc")]


def test_the_entry_points_are_those_of_pyproject(wheel: Path) -> None:
    text = metadata(wheel, "entry_points.txt")
    project = CONFIG["project"]
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    for group, entries in groups.items():
        part = text.split(f"[{group}]\n")[1].split("\n[")[0]
        assert dict(line.split(" = ") for line in part.strip().splitlines()) == entries


def test_the_metadata_describe_the_release(wheel: Path) -> None:
    facts = Parser().parsestr(metadata(wheel, "METADATA"))
    assert facts["Version"] == CONFIG["project"]["version"]
    assert facts["License-Expression"] == "Apache-2.0"
    assert facts["Requires-Python"] == ">=3.10"
    assert facts["Description-Content-Type"] == "text/markdown"
    assert metadata(wheel, "licenses/LICENSE") == (ROOT / "LICENSE").read_text(encoding="utf-8")
    always = [line for line in facts.get_all("Requires-Dist") if "extra ==" not in line]
    on_new_pythons = [line for line in always if "python_version" not in line]
    assert len(on_new_pythons) <= MAX_DEPENDENCIES
    assert [line for line in always if line not in on_new_pythons] == [
        "tomli>=2; python_version < '3.11'"
    ]


def test_the_extra_for_models_has_what_looks_at_one(wheel: Path) -> None:
    """transformers reads a model without its weights with accelerate, which a trainer may bring."""
    facts = Parser().parsestr(metadata(wheel, "METADATA"))
    of_extra = [line for line in facts.get_all("Requires-Dist") if "extra == 'hf'" in line]
    found = {re.split(r"[<>=; ]", line)[0] for line in of_extra}
    assert found >= {"transformers", "tokenizers", "torch", "accelerate"}, of_extra


def test_the_sdist_builds_the_same_wheel(wheel: Path, unpacked: Path, tmp_path: Path) -> None:
    again = build(unpacked, "wheel", tmp_path)
    assert names(again) == names(wheel)
    with zipfile.ZipFile(again) as one, zipfile.ZipFile(wheel) as other:
        different = [n for n in one.namelist() if one.read(n) != other.read(n)]
    assert different == []


def test_the_sdist_has_documents_and_neither_tests_nor_results(unpacked: Path) -> None:
    for name in ("README.md", "CHANGELOG.md", "LICENSE", "SECURITY.md", "docs/install.md"):
        assert (unpacked / name).is_file(), name
    assert [name for name in NOT_RELEASED if (unpacked / name).exists()] == []
