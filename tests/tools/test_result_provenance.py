"""The report on results whose commit is not in the history, in repositories made for the test."""

from __future__ import annotations

import json
import subprocess

import pytest


@pytest.fixture
def tool(load_tool):
    return load_tool("result_provenance")


def git(root, *arguments):
    command = ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    """A repository of two commits; returns its folder and the first commit."""
    root = tmp_path / "checkout"
    (root / "benchmarks").mkdir(parents=True)
    git(root, "init", "-q")
    git(root, "commit", "-q", "--allow-empty", "-m", "one")
    first = git(root, "rev-parse", "HEAD")
    git(root, "commit", "-q", "--allow-empty", "-m", "two")
    return root, first


def add(root, name, data):
    (root / "benchmarks" / name).write_text(json.dumps(data))
    git(root, "add", "-A")


def test_a_commit_of_the_history_is_sound_also_in_short(tool, checkout):
    root, first = checkout
    add(root, "whole.json", {"commit": first})
    add(root, "short.json", {"rows": [{"commit": first[:12]}, {"commit": None}]})
    assert tool.offenders(root) == {}


def test_every_fault_is_found_at_any_depth(tool, checkout):
    root, first = checkout
    other = first.translate(str.maketrans("0123456789abcdef", "123456789abcdef0"))
    add(root, "gone.json", {"commit": other})
    add(root, "dirty.json", {"sessions": [{"commit": first}, {"commit": f"{first}+"}]})
    add(root, "both.json", [{"commit": other}, {"commit": f"{other}+"}])
    add(root, "tiny.json", {"commit": first[:4]})
    assert tool.offenders(root) == {
        "benchmarks/gone.json": "not in the history",
        "benchmarks/dirty.json": "uncommitted changes",
        "benchmarks/both.json": "not in the history and uncommitted changes",
        "benchmarks/tiny.json": "not in the history",
    }


def test_a_commit_of_another_branch_is_not_in_the_history(tool, checkout):
    root, first = checkout
    last = git(root, "rev-parse", "HEAD")
    git(root, "checkout", "-q", first)
    add(root, "later.json", {"commit": last})
    assert tool.offenders(root) == {"benchmarks/later.json": "not in the history"}


def test_a_history_that_is_cut_off_is_no_pass(tool, checkout, tmp_path, monkeypatch, capsys):
    root, _ = checkout
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{root}", str(shallow))
    with pytest.raises(tool.NoHistory, match="unshallow"):
        tool.offenders(shallow)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(tool.NoHistory, match="no history"):
        tool.offenders(tmp_path / "nothing")
    monkeypatch.setattr("sys.argv", ["result_provenance.py"])
    monkeypatch.setattr(tool.offenders, "__defaults__", (shallow,))
    assert tool.main() == 2
    assert "unshallow" in capsys.readouterr().err
