"""A run with a checkout of RL2's newer source: ``make test-rl2-source RL2_SOURCE=directory``.

The source has no release. The commit that was tested is 9161ede (2026-05-20). It plays the same
tasks with the same seeds as the release 0.0.2, so the first batch is the same, token for token.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gem_core.runs.directory.run_dir import RunDir

pytestmark = pytest.mark.slow
KEYS = ("batch.episodes=8", "train.steps=2", "eval.episodes=0", "algorithm.epochs=1")


def train(path, source, *keys):
    """A run of two steps with the RL2 at ``source``, or with the installed one."""
    command = [sys.executable, "-m", "gem_core.cli", "train", "guess-the-number-easy"]
    command += ["--profile", "tiny", "--trainer", "rl2", "--run", str(path)]
    for key in (*KEYS, *keys):
        command += ["--set", key]
    environment = {name: value for name, value in os.environ.items() if name != "RL2_SOURCE"}
    if source:
        environment["PYTHONPATH"] = source
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    log = path / "rl2.log"
    assert done.returncode == 0, (done.stdout + done.stderr + log.read_text())[-3000:]
    return RunDir(path)


@pytest.fixture(scope="module")
def source():
    """The checkout."""
    folder = os.environ["RL2_SOURCE"]
    assert os.path.exists(os.path.join(folder, "RL2", "utils", "communication.py")), folder
    return folder


NOT_LOGGED = {"kl", "rollout/logprob_difference"}
"""What the newer source does not log, beside what the clock decides."""


def figures(row):
    return {name for name in row if name.partition("/")[0] != "time"}


@pytest.mark.parametrize(
    "keys",
    [
        (),
        ("algorithm.estimator=gae",),
        # The critic values the states in which the limit cuts episodes.
        ("algorithm.estimator=gae", "env.0.max_turns=2"),
        # A term of the reward.
        ("algorithm.kl_coef=0.1", "algorithm.kl_in=reward"),
    ],
    ids=["rebn", "gae", "gae-cut", "kl"],
)
def test_the_newer_source_plays_and_learns_as_the_release(source, tmp_path, keys):
    newer = train(tmp_path / "newer", source, *keys)
    release = train(tmp_path / "release", "", *keys)
    assert (newer.model / "config.json").exists()
    assert len(newer.metrics()) == len(release.metrics()) == 2
    for ours, theirs in zip(newer.metrics(), release.metrics(), strict=True):
        assert figures(ours) == figures(theirs) - NOT_LOGGED
        for name in sorted(figures(ours)):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-4, abs=1e-6), name
    if "env.0.max_turns=2" in keys:
        assert release.metrics()[0]["stop/truncated_turns"] > 0


def test_it_refuses_to_resume(source, tmp_path):
    run = train(tmp_path / "run", source, "train.save_every=1")
    (run.path / "result.json").unlink()
    command = [sys.executable, "-m", "gem_core.cli", "train", "guess-the-number-easy"]
    command += ["--profile", "tiny", "--trainer", "rl2", "--run", str(run.path), "--resume"]
    for key in (*KEYS, "train.save_every=1"):
        command += ["--set", key]
    environment = {**os.environ, "PYTHONPATH": source}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode != 0
    log = (run.path / "rl2.log").read_text()
    assert "counts its steps from 1 again" in done.stdout + done.stderr + log
