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


def with_list(root, *names):
    """Commit the list of known offenders."""
    (root / "scripts").mkdir(exist_ok=True)
    (root / "scripts" / "unsound_results.txt").write_text("".join(f"{name}\n" for name in names))
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "list")


def test_only_what_the_list_names_may_be_unsound(tool, checkout, capsys):
    root, first = checkout
    add(root, "old.json", {"commit": "0" * 40})
    add(root, "sound.json", {"commit": first})
    with_list(root, "benchmarks/old.json")
    assert tool.main([], root) == 0
    assert capsys.readouterr().out == "2 JSON files of results, 1 of them known as unsound\n"


@pytest.mark.parametrize(
    ("commit", "what"), [("1" * 40, "not in the history"), ("{first}+", "uncommitted changes")]
)
def test_a_new_offender_is_refused(tool, checkout, capsys, commit, what):
    root, first = checkout
    with_list(root)
    add(root, "new.json", {"commit": commit.format(first=first)})
    for arguments in ([], ["--shrink"]):
        assert tool.main(arguments, root) == 1
        assert f"benchmarks/new.json: {what}" in capsys.readouterr().err


def test_a_line_of_a_result_that_is_sound_or_gone_is_refused_until_it_is_removed(
    tool, checkout, capsys
):
    root, first = checkout
    for name in ("kept.json", "made-again.json", "removed.json", "deleted.json"):
        add(root, name, {"commit": "0" * 40})
    names = ["deleted", "kept", "made-again", "removed"]
    with_list(root, *(f"benchmarks/{name}.json" for name in names))
    assert tool.main([], root) == 0
    add(root, "made-again.json", {"commit": first})
    git(root, "rm", "-q", "benchmarks/removed.json")
    (root / "benchmarks" / "deleted.json").unlink()  # git does not know of it yet
    capsys.readouterr()
    assert tool.main([], root) == 1
    assert capsys.readouterr().err.count("sound or gone: `python scripts") == 3
    assert tool.main(["--shrink"], root) == 0
    assert "3 lines removed" in capsys.readouterr().out
    assert tool.known(root) == ["benchmarks/kept.json"]


def test_the_list_does_not_grow(tool, checkout, capsys):
    root, _ = checkout
    with_list(root, "benchmarks/old.json", "benchmarks/older.json")
    add(root, "old.json", {"commit": "0" * 40})
    add(root, "new.json", {"commit": "0" * 40})
    with_list(root, "benchmarks/new.json", "benchmarks/old.json")
    assert tool.main([], root) == 1
    assert capsys.readouterr().err == (
        "result_provenance: benchmarks/new.json was added to scripts/unsound_results.txt, which "
        "only shrinks: remove the line.\n"
    )


def test_all_offenders_are_printed_on_demand(tool, checkout, capsys):
    root, first = checkout
    add(root, "new.json", {"commit": f"{first}+"})
    assert tool.main(["--list"], root) == 0
    assert capsys.readouterr().out == "benchmarks/new.json: uncommitted changes\n"
