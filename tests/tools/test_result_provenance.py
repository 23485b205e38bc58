"""The check of the commits that results name, in repositories made for the test."""

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


def test_a_history_that_is_cut_off_is_said(tool, checkout, tmp_path, capsys):
    root, _ = checkout
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{root}", str(shallow))
    with pytest.raises(tool.NoHistory, match="unshallow"):
        tool.offenders(shallow)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(tool.NoHistory, match="not a git repository"):
        tool.offenders(tmp_path / "nothing")
    for folder in ("shallow", "nothing"):
        assert tool.main([], tmp_path / folder) == 0
        assert capsys.readouterr().err.count("nothing was checked") == 1


def test_another_history_is_said(tool, checkout, capsys):
    root, first = checkout
    for number in range(20):
        add(root, f"of-{number}.json", {"commit": f"{number:040x}"})
    with pytest.raises(tool.NoHistory, match="none of the 20 commits"):
        tool.offenders(root)
    add(root, "sound.json", {"commit": first})
    assert len(tool.offenders(root)) == 20


def test_a_result_without_a_commit_is_unsound_and_an_input_is_no_result(tool, checkout):
    root, first = checkout
    add(root, "figures.json", {"seconds": 1.0, "commit": None})
    add(root, "refusals.json", {"a.key": "another.key"})
    (root / "benchmarks" / "run").mkdir()
    add(root, "run/run.json", {"commit": first})
    add(root, "run/recipe.json", {"name": "a"})
    add(root, "run/controls.json", {"random": 0.1})
    assert tool.offenders(root) == {"benchmarks/figures.json": "no commit"}


def test_the_exit_code_says_whether_all_are_sound(tool, checkout, capsys):
    root, first = checkout
    add(root, "sound.json", {"commit": first})
    assert tool.main([], root) == 0
    assert capsys.readouterr().out == "1 JSON files of results, 0 unsound\n"
    for number in range(12):
        add(root, f"of-{number:02}.json", {"commit": f"{first}+"})
    assert tool.main([], root) == 1
    out, err = capsys.readouterr()
    assert out == "13 JSON files of results, 12 unsound\n"
    assert "benchmarks/of-09.json: uncommitted changes. Make it again" in err
    assert "of-10" not in err and "and 2 more" in err
