"""Trainers: found by entry point, checked without importing them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib

import gem_core
from gem_core.errors import MissingDependencyError, UnknownNameError, python_needed
from gem_core.runs.trainers import Trainer, check, get_trainer, list_trainers, require

ROOT = Path(__file__).resolve().parents[2]


def fake(**changes):
    fields = {
        "name": "fake",
        "distribution": "msgspec",
        "tested": ("0.1", "99"),
        "python": ((3, 10), (3, 99)),
        "install": "pip install fake",
        "launch": "fake:run",
        "translate": "fake:translate",
    }
    return Trainer(**{**fields, **changes})


def test_a_trainer_that_is_here_is_ready():
    status = check(fake())
    assert status.ready and status.version and status.trainer.tested_range == ">=0.1,<99"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"distribution": "no-such-dist"}, "not installed: pip install fake"),
        ({"tested": ("90.1", "91")}, r"outside the tested range >=90.1,<91: pip install fake"),
        ({"tested": ("0.0.1", "0.0.2")}, "outside the tested range"),
        ({"python": ((3, 6), (3, 7))}, r"needs Python >=3.6,<3.7; this is 3"),
        ({"modules": {"no_such_module": "pip install it"}}, "no_such_module is missing: pip inst"),
    ],
)
def test_what_is_missing_is_named_with_the_command(changes, message):
    with pytest.raises(MissingDependencyError, match=message):
        require(fake(**changes))


def declared():
    """The requirements of the extras as pyproject.toml has them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    return [f"{line}; extra == '{name}'" for name, lines in extras.items() for line in lines]


def test_an_extra_that_installs_nothing_names_the_python_that_it_needs():
    """pip installs nothing, without a word, where the markers exclude the Python."""
    expected = {
        "trl": {(3, 10): ">=3.11"},
        "verifiers": {(3, 10): ">=3.11"},
        "inspect": {(3, 10): ">=3.11"},
        "oat": dict.fromkeys([(3, 11), (3, 12), (3, 13)], "<3.11"),
        **{name: {(3, 13): "<3.13"} for name in ("verl", "openrlhf", "rl2")},
        "gem-llm": {(3, 13): "<=3.12"},
        "mcp": {},
    }
    for extra, needed in expected.items():
        for python in ((3, 10), (3, 11), (3, 12), (3, 13)):
            assert python_needed(extra, python, declared()) == needed.get(python), extra


def test_every_trainers_extra_is_for_the_python_that_it_declares():
    for trainer in list_trainers().values():
        for python in ((3, 10), (3, 11), (3, 12), (3, 13)):
            low, below = trainer.python
            fits = low <= python < below
            needed = python_needed(trainer.name, python, declared())
            if trainer.name == "oat" and python == (3, 11):  # built for the tests, not by the extra
                continue
            assert fits == (needed is None), (trainer.name, python, needed)
            status = check(trainer, python=python, version_of=lambda _: None)
            (problem,) = status.problems
            assert problem.startswith("needs Python" if not fits else trainer.distribution)


def test_a_trainer_whose_extra_installed_nothing_says_so():
    (problem,) = check(get_trainer("oat"), python=(3, 11), version_of=lambda _: None).problems
    nothing = "gem-core[oat] installs nothing on Python 3.11 (it needs <3.11)"
    assert problem.startswith(f"oat-llm is not installed, and {nothing}: pip install ")


def test_unknown_trainer_is_guessed():
    with pytest.raises(UnknownNameError, match="Did you mean 'openrlhf'"):
        get_trainer("openrlf")


def test_listing_trainers_imports_no_framework():
    code = (
        "import sys; from gem_core.runs.trainers import list_trainers, check; "
        "names = list(list_trainers()); [check(t) for t in list_trainers().values()]; "
        "bad = {'torch', 'transformers', 'trl', 'verl', 'openrlhf', 'oat', 'RL2', 'ray'}; "
        "assert not bad & set(sys.modules), bad & set(sys.modules); print(names)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert eval(done.stdout) == ["oat", "openrlhf", "rl2", "trl", "verl"]


def test_the_core_names_no_trainer_but_the_default_of_the_command_line():
    names = {name for t in list_trainers().values() for name in (t.name, t.distribution)}
    core = Path(gem_core.__file__).parent
    places = {
        str(path.relative_to(core))
        for path in core.rglob("*.py")
        if "envs" not in path.parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in names
    }
    assert places == {"cli/parser.py"}
