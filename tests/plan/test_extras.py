"""What the doctor says of the extras: each that is declared, and those that pip skips silently."""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import metadata
from pathlib import Path

import pytest

from gem_core.cli import main
from gem_preflight.extras import find_extras

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_every_declared_extra_is_known_and_none_is_empty_or_misspelt():
    found = {extra.name for extra in find_extras()}
    assert found == set(PROJECT["optional-dependencies"])
    assert found == set(metadata("gem-core").get_all("Provides-Extra"))


def test_an_extra_that_needs_nothing_more_is_installed():
    extras = {extra.name: extra for extra in find_extras(version_of=lambda _: None)}
    assert PROJECT["optional-dependencies"]["view"] == []
    assert extras["view"].state == "installed" and extras["yaml"].state == "missing: pyyaml"


@pytest.mark.parametrize(
    ("python", "name", "needs"),
    [
        ((3, 13), "gem-llm", "<=3.12"),
        ((3, 12), "gem-llm", None),
        ((3, 10), "verifiers", ">=3.11"),
        ((3, 11), "verifiers", None),
        ((3, 10), "inspect", ">=3.11"),
        ((3, 11), "oat", "<3.11"),
    ],
)
def test_an_extra_that_pip_skips_is_told_from_one_that_is_missing(python, name, needs):
    extras = {e.name: e for e in find_extras(python=python, version_of=lambda _: None)}
    said = extras[name]
    assert said.needs == needs
    if needs is None:
        assert said.state.startswith("missing: ")
    else:
        assert said.state == f"installs nothing on this Python: needs {needs}"
    assert said.data()["installed"] is False


@pytest.mark.parametrize("python", [(3, 10), (3, 11), (3, 12), (3, 13)])
def test_the_extras_for_a_purpose_install_something_on_every_python(python):
    extras = {e.name: e for e in find_extras(python=python, version_of=lambda _: None)}
    for name, a_part_of_it in {
        "eval": {"aiohttp", "math-verify", "datasets"},
        "envs": {"reasoning-gym", "bm25s", "mcp", "gymnasium", "textarena"},
        "tracking": {"tensorboard", "wandb", "mlflow-skinny", "trackio"},
    }.items():
        assert a_part_of_it <= set(extras[name].missing)


def test_only_what_is_missing_is_named():
    lines = ["one>=1; extra == 'both'", "two; extra == 'both'", "always"]
    (extra,) = find_extras(lines, (3, 11), {"one": "1"}.get)
    assert (extra.missing, extra.state) == (("two",), "missing: two")
    (extra,) = find_extras(lines, (3, 11), {"one": "1", "two": "2"}.get)
    assert extra.data() == {"name": "both", "installed": True, "state": "installed", "fix": None}


def test_doctor_prints_and_gives_every_extra(capsys):
    main(["doctor", "--json"])
    data = json.loads(capsys.readouterr().out)
    assert [extra["name"] for extra in data["extras"]] == [e.name for e in find_extras()]


def test_the_classifiers_are_the_pythons_of_the_make_targets():
    named = {c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)}
    tested = re.search(r"^PYTHONS := (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert tested is not None and named == {*tested[1].split(), "3.11"}
    assert "Operating System :: POSIX :: Linux" in PROJECT["classifiers"]
    assert "Typing :: Typed" in PROJECT["classifiers"]
    for file in (PROJECT["readme"], *PROJECT["license-files"], "gem_core/py.typed"):
        assert (ROOT / file).is_file(), file
