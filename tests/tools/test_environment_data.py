"""The data of the environments: steps, exact sets and published extras must agree."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import tomllib
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
DATA = tomllib.loads((ROOT / "constraints" / "environments.toml").read_text())
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
NAMES = [key for key, value in DATA.items() if isinstance(value, dict)]
TRAINERS = {
    "trl": "trl",
    "verl": "verl",
    "openrlhf": "openrlhf",
    "oat": "oat-llm",
    "rl2": "rl-square",
}


def pinned(name: str) -> dict[str, str]:
    lines = (ROOT / "constraints" / f"{name}.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(package): version for package, version in pairs}


def requirements(name: str) -> list[Requirement]:
    common = DATA[name].get("common", DATA["common"])
    steps = [*DATA[name]["steps"], {"install": common}]
    return [Requirement(text) for step in steps for text in step["install"]]


def test_the_environments_are_core_the_trainers_and_those_of_slow_targets() -> None:
    engines = {f"{trainer}-vllm" for trainer in TRAINERS}  # the trainers' sets with a real engine
    assert [name for name in NAMES if name in ("core", *TRAINERS)] == ["core", *TRAINERS]
    slow = {"view", "docs", "launchpad", "bridges", "verifiers", "inspect", "torchrl", "floors"}
    pythons = {"python-3.10", "python-3.12", "python-3.13"}
    assert set(NAMES) - engines == {"core", *TRAINERS, *slow, *pythons}


@pytest.mark.parametrize("name", NAMES)
def test_every_requirement_has_a_pin_that_satisfies_it(name: str) -> None:
    pins = pinned(name)
    for requirement in requirements(name):
        version = pins[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version, prereleases=True), (
            str(requirement),
            version,
        )


@pytest.mark.parametrize("name", NAMES)
def test_no_pin_has_a_local_version(name: str) -> None:
    assert [pin for pin in pinned(name).items() if "+" in pin[1]] == []


@pytest.mark.parametrize("name", NAMES)
def test_the_dependencies_of_gem_core_itself_are_in_every_set(name: str) -> None:
    pins = pinned(name)
    for text in PYPROJECT["project"]["dependencies"]:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"python_version": "3.11"}):
            assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), text


def test_core_has_neither_torch_nor_transformers() -> None:
    assert not {"torch", "transformers", "tokenizers"} & set(pinned("core"))


@pytest.mark.parametrize("name", TRAINERS)
def test_the_tested_trainer_is_inside_the_published_extra(name: str) -> None:
    extra = [Requirement(text) for text in PYPROJECT["project"]["optional-dependencies"][name]]
    tested = pinned(name)
    checked = [r for r in extra if canonicalize_name(r.name) in tested]
    assert TRAINERS[name] in {r.name for r in checked}
    for requirement in checked:
        version = tested[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), (str(requirement), version)


@pytest.mark.parametrize("name", TRAINERS)
def test_make_knows_the_trainer(name: str) -> None:
    for target in (f"env-{name}", f"test-{name}"):
        command = ["make", "--dry-run", "--always-make", "--directory", str(ROOT), target]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert f"scripts/make_env.py {name}" in done.stdout


@pytest.mark.parametrize("name", TRAINERS)
def test_the_installation_page_names_the_tested_version(name: str) -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    assert f"| {name} | {pinned(name)[TRAINERS[name]]} |" in page
