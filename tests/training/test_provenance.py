"""Results name the commit of a clean checkout."""

from __future__ import annotations

import argparse
import subprocess

import pytest

from gem_core.errors import RunError
from gem_core.runs import provenance
from gem_core.runs.provenance import changes, check_option, commit, require_clean


@pytest.fixture
def checkout(tmp_path):
    """A checkout with one commit."""

    def git(*arguments):
        identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
        command = ["git", *identity, *arguments]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)

    write(tmp_path, "gem_core/a.py", "one")
    write(tmp_path, "benchmarks/x/run.py", "one")
    git("init")
    git("add", "-A")
    git("commit", "-m", "m")
    return tmp_path


def write(checkout, name, text):
    path = checkout / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_clean_checkout_has_its_commit(checkout):
    name = commit(checkout)
    assert len(name) == 40 and not provenance.is_dirty(name)
    require_clean(checkout=checkout)


@pytest.mark.parametrize("name", ["gem_core/a.py", "gem_core/new.py", "benchmarks/x/run.py"])
def test_changed_and_new_sources_make_it_dirty(checkout, name):
    write(checkout, name, "two")
    assert commit(checkout).endswith("+")
    with pytest.raises(RunError, match=f"{name}.*--allow-dirty"):
        require_clean(checkout=checkout)
    require_clean(allow_dirty=True, checkout=checkout)


@pytest.mark.parametrize(
    "name",
    [
        "benchmarks/x/results/run/cells.csv",
        "benchmarks/x/result.json",
        "benchmarks/x/README.md",
        "benchmarks/x/curve.png",
        "notes.txt",
    ],
)
def test_what_a_benchmark_writes_while_it_runs_does_not(checkout, name):
    write(checkout, name, "two")
    assert not provenance.is_dirty(commit(checkout))
    require_clean(checkout=checkout)


def test_an_installed_package_has_no_commit(tmp_path):
    assert commit(tmp_path) is None and changes(tmp_path) == []
    require_clean(checkout=tmp_path)


def test_many_changes_are_shortened(checkout):
    for number in range(8):
        write(checkout, f"gem_core/{number}.py", "x")
    with pytest.raises(RunError, match="and 3 more"):
        require_clean(checkout=checkout)


def test_a_program_ends_in_a_dirty_checkout(checkout, monkeypatch, capsys):
    write(checkout, "gem_core/a.py", "two")
    monkeypatch.setattr(provenance.require_clean, "__defaults__", (False, checkout))
    parser = argparse.ArgumentParser()
    provenance.add_option(parser)
    check_option(parser, parser.parse_args(["--allow-dirty"]))
    with pytest.raises(SystemExit):
        check_option(parser, parser.parse_args([]))
    assert "gem_core/a.py" in capsys.readouterr().err
