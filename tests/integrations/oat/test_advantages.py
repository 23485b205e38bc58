"""Advantages of Oat's rows are gem_core's, in any order, with padding, and over ranks."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from oat.utils.launcher import get_free_port

from gem_core.advantages import (
    TurnBatch,
    compute_advantages,
    list_estimators,
    register_estimator,
    value_targets,
)
from gem_core.parity.replay import turn_advantages
from gem_core.training.recipe import recipe_from_dict
from gem_oat.rows import Row, estimate_rows

CRITIC_FREE = [name for name in list_estimators() if name != "gae"]


def shuffled(rows, seed=0):
    infos = [data.row for data in rows] + [Row(-1)] * 3
    order = np.random.RandomState(seed).permutation(len(infos))
    return [infos[n] for n in order]


@pytest.mark.parametrize("estimator", CRITIC_FREE)
def test_same_as_gem_core_in_any_order(recipe, episodes, rows, estimator):
    grouped = recipe(
        f"algorithm.estimator={estimator}", "batch.group_size=2", "algorithm.gamma=0.9"
    )
    expected = turn_advantages(grouped, episodes())
    infos = shuffled(rows)
    found = estimate_rows(infos, grouped.algorithm)
    for row, advantage in zip(infos, found.advantages, strict=True):
        wanted = 0.0 if row.episode < 0 else expected[row.episode][row.turn]
        assert advantage == pytest.approx(wanted, abs=1e-12)
    assert found.targets is None
    turns = [row for row in infos if row.episode >= 0]
    assert found.metrics["turns/masked"] == sum(row.excluded for row in turns) > 0


def test_options_and_third_party_estimators_arrive(recipe, rows):
    @register_estimator("oat-test-scaled")
    def scaled(batch, *, gamma, lam, reduce, factor=1.0):
        return factor * batch.rewards

    data = recipe("algorithm.estimator=oat-test-scaled").to_dict()
    data["algorithm"]["options"] = {"factor": 3.0}
    infos = [r.row for r in rows]
    found = estimate_rows(infos, recipe_from_dict(data).algorithm).advantages
    assert found.tolist() == [0.0 if r.excluded else 3.0 * r.reward for r in infos]


def test_equal_returns_give_zero_and_never_nan(recipe):
    # E[x^2] - E[x]^2 in float32 is negative for eight times 0.9: GEM's own formula gives NaN.
    infos = [Row(n, reward=0.9, excluded=False) for n in range(8)]
    x = torch.full((8,), 0.9)
    assert torch.sqrt((x**2).sum() / 8 - (x.sum() / 8) ** 2).isnan()
    found = estimate_rows(infos, recipe("algorithm.estimator=rebn").algorithm)
    assert found.advantages.tolist() == [0.0] * 8 and found.metrics["advantage/constant"] == 1.0


@pytest.mark.parametrize("whiten", [False, True])
def test_gae_reads_values_and_bootstraps_at_truncation(recipe, whiten):
    data = recipe("algorithm.estimator=gae", "algorithm.gamma=0.9").to_dict()
    data["algorithm"]["options"] = {"whiten": whiten}
    gae = recipe_from_dict(data)
    infos = [
        Row(0, 0, reward=0.0, excluded=False),
        Row(0, 1, reward=1.0, excluded=False),
        Row(1, 0, reward=0.5, excluded=False),
        Row(1, 1, state=True),
        Row(-1),
    ]
    values = np.array([0.1, 0.2, 0.3, 0.4, 9.0])
    batch = TurnBatch(
        rewards=[0.0, 1.0, 0.5], episode=[0, 0, 1], values=values[:3], bootstrap=[0.0, 0.0, 0.4]
    )
    keywords = {"gamma": 0.9, "lam": 0.95}
    order = [4, 2, 0, 3, 1]
    shuffled_infos = [infos[n] for n in order]
    found, targets, _ = estimate_rows(shuffled_infos, gae.algorithm, values=values[order])
    expected = compute_advantages("gae", batch, whiten=whiten, **keywords)
    raw = compute_advantages("gae", batch, **keywords)
    back = np.argsort(order)
    np.testing.assert_allclose(found[back], [*expected, 0, 0], atol=1e-12)
    np.testing.assert_allclose(targets[back][:3], value_targets(raw, values[:3]), atol=1e-12)


def test_two_ranks_make_one_batch(recipe, rows, tmp_path):
    """Over gloo, also with nothing on the first rank: every rank joins every reduction."""
    rebn = recipe("algorithm.estimator=rebn", "algorithm.gamma=0.9")
    infos = [data.row for data in rows]
    cases = [
        [[r for r in infos if (r.episode < cut) == first] for first in (True, False)]
        for cut in (10, 0)
    ]
    (tmp_path / "cases.pkl").write_bytes(pickle.dumps((rebn, cases)))
    command = [sys.executable, str(Path(__file__).with_name("two_ranks.py"))]
    port = str(get_free_port())
    workers = [subprocess.Popen([*command, str(n), port, str(tmp_path)]) for n in range(2)]
    assert [worker.wait(timeout=300) for worker in workers] == [0, 0]
    ranks = [pickle.loads((tmp_path / f"{n}.pkl").read_bytes()) for n in range(2)]
    expected = estimate_rows(infos, rebn.algorithm)
    for first, second in zip(*ranks, strict=True):
        both = np.concatenate([first.advantages, second.advantages])
        np.testing.assert_allclose(both, expected.advantages, atol=1e-12)
        assert first.metrics == pytest.approx(expected.metrics) == second.metrics
