"""What ``benchmarks/learn/run.py`` refuses before it measures; TRL's tests measure a cell."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gem_core.runs.directory.lock import exclusive

from .conftest import FOLDER

BARE = 'name = "bare"\n[[env]]\nid = "game:Sudoku-v0-easy"\n'


def refused(*options):
    """Return what the program says when it ends with an error."""
    command = [sys.executable, str(FOLDER / "run.py"), "--allow-dirty", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0 and done.stdout == ""
    return done.stderr


@pytest.mark.parametrize("option", [("--seeds", "100"), ("--set", "train.steps=1")])
def test_trials_are_no_committed_results(option, tmp_path):
    said = refused(*option, "--out", str(tmp_path / "out"))
    assert "trials: name another folder with --results" in said
    assert not (tmp_path / "out").exists()


def test_a_baseline_without_settings_is_refused(tmp_path):
    (tmp_path / "bare.toml").write_text(BARE)
    said = refused("--baselines", str(tmp_path / "bare.toml"), "--out", str(tmp_path / "out"))
    assert said.endswith("has no table [profiles.learn]: write it, or leave it out.\n")


def test_two_programs_do_not_share_a_folder_of_runs(tmp_path):
    (tmp_path / "one.toml").write_text(f"{BARE}[profiles.learn]\ntrain.steps = 1\n")
    places = ["--results", str(tmp_path / "results"), "--out", str(tmp_path / "out")]
    with exclusive(tmp_path / "out"):
        said = refused("--baselines", str(tmp_path / "one.toml"), *places)
    assert "is in use by" in said
    assert not (tmp_path / "results").exists()
