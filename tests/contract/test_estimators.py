"""Estimators of other packages: those that need a critic get one, those that need groups too."""

from __future__ import annotations

import json

import numpy as np
import pytest

STRANGER = """
import json
import os

import numpy as np

from gem_core.advantages import compute_advantages, declare_needs


@declare_needs(needs_values=True)
def my_gae(batch, *, gamma, lam, reduce):
    with open(os.environ["STRANGER_LOG"], "a") as log:
        bootstrap = np.zeros(len(batch)) if batch.bootstrap is None else batch.bootstrap
        given = {"episode": batch.episode, "rewards": batch.rewards, "values": batch.values}
        given["bootstrap"] = bootstrap
        log.write(json.dumps({key: array.tolist() for key, array in given.items()}) + "\\n")
    return compute_advantages("gae", batch, gamma=gamma, lam=lam, reduce=reduce)


@declare_needs(needs_groups=True)
def my_grpo(batch, *, gamma, lam, reduce):
    return compute_advantages("grpo", batch, gamma=gamma, lam=lam, reduce=reduce)
"""
POINTS = "[gem_core.advantages]\nmy_gae = stranger:my_gae\n"
GAMMA = 0.9
LAM = 0.8


@pytest.fixture
def stranger(package_path, tmp_path, monkeypatch):
    """A package with two estimators; returns the file in which one notes what it was given."""
    package_path("stranger", STRANGER, POINTS)
    monkeypatch.setenv("STRANGER_LOG", str(tmp_path / "given.jsonl"))
    return tmp_path / "given.jsonl"


def gae(given):
    """Turn-level GAE in plain Python, for what one call of the estimator was given."""
    advantages = [0.0] * len(given["rewards"])
    for turn in reversed(range(len(advantages))):
        is_last = (
            turn + 1 == len(advantages) or given["episode"][turn + 1] != given["episode"][turn]
        )
        after = given["bootstrap"][turn] if is_last else given["values"][turn + 1]
        delta = given["rewards"][turn] + GAMMA * after - given["values"][turn]
        advantages[turn] = delta + (0.0 if is_last else GAMMA * LAM * advantages[turn + 1])
    return np.array(advantages)


@pytest.mark.slow("oat", "openrlhf", "rl2", "verl")
def test_an_estimator_that_needs_values_trains_with_a_critic(stranger, train):
    keys = [f"algorithm.gamma={GAMMA}", f"algorithm.lam={LAM}"]
    status, output, run = train("run", "algorithm.estimator=my_gae", *keys)
    assert status == 0, output[-4000:]
    given = [json.loads(line) for line in stranger.read_text().splitlines()]
    rows = run.metrics()
    assert len(given) == len(rows) == 2
    assert set(given[0]["values"]) == {0.0}, "the critic's head does not begin at zero"
    assert len(set(given[1]["values"])) > 2, "the critic gives all states the same value"
    for step, row in zip(given, rows, strict=True):
        advantages = gae(step)
        assert row["advantage/mean"] == pytest.approx(advantages.mean(), abs=1e-9)
        assert row["advantage/std"] == pytest.approx(advantages.std(), abs=1e-9)
        assert row["loss/value"] > 0 and row["grad_norm"] > 0


def test_an_estimator_that_needs_groups_is_refused_without_them(stranger, train):
    status, output, run = train("run", "algorithm.estimator=stranger:my_grpo")
    assert status != 0 and not run.path.exists()
    assert "batch.group_size: algorithm.estimator = 'stranger:my_grpo'" in output
