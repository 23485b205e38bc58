"""Subcommands of other packages, which gem-core finds by their entry points."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MODULE = """
from gem_core.cli.commands import Command
from gem_core.cli.options import add_json

def add_options(verb):
    verb.add_argument("name")
    add_json(verb)

def greet(arguments):
    print(f"hello {arguments.name}")
    return 3

def add_loud(verb):
    verb.add_argument("--loud", action="store_const", dest="verb", const="greeting:shout")

def shout(arguments):
    print("HELLO", arguments.kind)
    return 4

MORE = {"list": add_loud, "gone": add_loud}
GREET = Command("greet somebody", "greeting:greet", add_options, MORE)
"""


@pytest.fixture
def gem_core(tmp_path):
    """Return a function that runs gem-core where a package is installed that adds subcommands."""
    (tmp_path / "greeting.py").write_text(MODULE)
    installed = tmp_path / "greeting-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")

    def run(entry_points: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        (installed / "entry_points.txt").write_text(f"[gem_core.commands]\n{entry_points}\n")
        paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
        return subprocess.run(
            [sys.executable, "-m", "gem_core", *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )

    return run


def test_a_package_adds_a_subcommand(gem_core):
    done = gem_core("greet = greeting:GREET", "greet", "you", "--json")
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "hello you\n")
    helped = gem_core("greet = greeting:GREET", "greet", "--help").stdout
    assert "Greet somebody." in helped and "--quiet" in helped


def test_a_package_adds_an_option_to_a_subcommand_of_the_core(gem_core):
    """What it says of a subcommand that the core does not have is left out."""
    done = gem_core("greet = greeting:GREET", "list", "--kind", "trainers", "--loud")
    assert (done.returncode, done.stdout, done.stderr) == (4, "HELLO trainers\n", "")
    assert "verl" in gem_core("greet = greeting:GREET", "list", "--kind", "trainers").stdout


@pytest.mark.parametrize(
    ("entry_point", "reason"),
    [
        ("greet = missing_module:GREET", "No module named 'missing_module'"),
        ("greet = greeting:ABSENT", "has no attribute 'ABSENT'"),
        ("greet = greeting:greet", "it is no gem_core.cli.commands.Command"),
        ("train = greeting:GREET", "there is another subcommand of that name"),
        ("view = a_module:GREET", "'view' (a_module:GREET) is left out: there is another"),
    ],
)
def test_one_that_cannot_be_used_leaves_the_others(gem_core, entry_point, reason):
    done = gem_core(entry_point, "list", "--kind", "trainers")
    assert done.returncode == 0 and "verl" in done.stdout
    assert reason in done.stderr and "is left out" in done.stderr


def test_own_subcommands_are_found_as_those_of_others_are():
    from gem_core.cli.commands import load_commands

    declared = Path(__file__).parents[2].joinpath("pyproject.toml").read_text("utf-8")
    table = declared.split('[project.entry-points."gem_core.commands"]')[1].split("\n\n")[0]
    assert sorted(load_commands([])) == sorted(
        line.split(" = ")[0] for line in table.strip().splitlines()
    )
