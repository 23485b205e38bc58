"""What the laboratory says of estimators: exactly on small batches, and that it finds faults."""

from __future__ import annotations

from itertools import product

import closed_forms
import numpy as np
import pytest
import turn_estimators
from batches import Case, batch_gradient, draw
from estimate import angle, exact_expectation, measure
from exact import gradient
from processes import PROCESSES

from gem_core.advantages import discounted_returns, register_estimator

assert turn_estimators.turn_index is not turn_estimators.turn_loo  # importing registers them
SINGLE = [name for name in PROCESSES if name != "two tasks"]


@register_estimator("laboratory_wrong_sign")
def wrong_sign(batch, *, gamma, lam, reduce):
    return -discounted_returns(batch, gamma)


@register_estimator("laboratory_batch_mean")
def batch_mean(batch, *, gamma, lam, reduce):
    returns = discounted_returns(batch, gamma)
    return returns - returns.mean()


@register_estimator("laboratory_own_mean")
def own_mean(batch, *, gamma, lam, reduce):
    """A fault: the baseline is the mean of the episode's own returns."""
    returns = discounted_returns(batch, gamma)
    count = np.bincount(batch.episode)
    return returns - (np.bincount(batch.episode, weights=returns) / count)[batch.episode]


@pytest.mark.parametrize("estimator", ["reinforce", "rloo", "turn_loo", "gae"])
@pytest.mark.parametrize("name", ["bandit", "retry", "random stop"])
def test_estimators_without_bias(trajectories, estimator, name):
    t = trajectories(name)
    mean, _ = exact_expectation(t, Case(estimator), 2)
    np.testing.assert_allclose(mean, gradient(t), atol=1e-12)


def test_every_order_of_a_batch_gives_the_same(trajectories):
    t = trajectories("retry")
    for estimator in ("rebn", "grpo", "turn_index", "turn_loo"):
        mean = np.zeros(t.score.shape[1])
        for chosen in product(range(t.probability.size), repeat=3):
            places = np.array(chosen)
            own = batch_gradient(t, places, np.zeros(3, dtype=np.int64), Case(estimator))
            mean += t.probability[places].prod() * own
        np.testing.assert_allclose(mean, exact_expectation(t, Case(estimator), 3)[0], atol=1e-12)


@pytest.mark.parametrize("size", [2, 3, 8])
def test_dr_grpo_is_the_gradient_but_for_its_size(trajectories, size):
    t = trajectories("retry")
    mean, _ = exact_expectation(t, Case("dr_grpo"), size)
    np.testing.assert_allclose(mean, closed_forms.dr_grpo(t, size), atol=1e-12)


def test_the_mean_of_a_batch_costs_one_batchth_of_the_slope_of_the_mean(trajectories):
    t = trajectories("retry")
    formula = closed_forms.batch_mean_bias(t)
    off = []
    for size in (32, 64):
        mean, _ = exact_expectation(t, Case("laboratory_batch_mean"), size)
        off.append(np.linalg.norm(size * (mean - gradient(t)) - formula))
    assert off[1] < 0.02 * np.linalg.norm(formula)
    assert off[0] / off[1] == pytest.approx(2.0, rel=0.1)  # what is left falls as 1 / B


def test_rebn_to_first_order(trajectories):
    t = trajectories("retry")
    off = [
        angle(exact_expectation(t, Case("rebn"), size)[0], closed_forms.rebn(t, size))
        for size in (32, 64)
    ]
    assert off[0] / off[1] == pytest.approx(4.0, rel=0.3)  # as 1 / B^2
    assert angle(closed_forms.rebn(t), gradient(t)) < 1e-6


@pytest.mark.parametrize("name", list(PROCESSES))
def test_two_forms_of_the_bias_of_the_turn_index(trajectories, name):
    t = trajectories(name)
    np.testing.assert_allclose(
        closed_forms.turn_index(t), closed_forms.turn_index_by_means(t), atol=1e-12
    )


def test_the_turn_index_tends_to_its_closed_form(trajectories):
    t = trajectories("retry")
    limit = closed_forms.turn_index(t)
    off = [
        np.linalg.norm(exact_expectation(t, Case("turn_index"), size)[0] - limit)
        for size in (32, 64)
    ]
    assert off[0] / off[1] == pytest.approx(2.0, rel=0.1)
    assert angle(limit, gradient(t)) > 10


def test_large_groups_tend_to_the_closed_form_of_grpo(trajectories):
    t = trajectories("two tasks")
    (figures,) = measure(t, [Case("grpo")], episodes=400, group_size=200, repetitions=300, seed=1)
    _, low, high = figures["angle"]
    assert low < angle(closed_forms.grpo(t), gradient(t)) < high


@pytest.mark.parametrize("name", ["tools", "search"])
def test_a_mean_over_turns_tends_to_its_closed_form(trajectories, name):
    t = trajectories(name)
    total = t.total(t.reward)
    limit = closed_forms.sequence_mean(t, total)
    case = Case("laboratory_return", aggregation="sequence")
    mean, _ = exact_expectation(t, case, 1)  # REINFORCE of whole episodes takes one at a time
    np.testing.assert_allclose(mean, limit, atol=1e-12)


@register_estimator("laboratory_return")
def whole_return(batch, *, gamma, lam, reduce):
    return np.bincount(batch.episode, weights=batch.rewards)[batch.episode]


def test_a_wrong_sign_is_found(trajectories):
    (figures,) = measure(
        trajectories("tools"),
        [Case("laboratory_wrong_sign")],
        episodes=16,
        group_size=4,
        repetitions=200,
        seed=0,
    )
    assert figures["angle"][1] > 170 and figures["batch_angle"][1] > 90


def test_a_baseline_of_the_own_episode_is_found(trajectories):
    t = trajectories("tools")
    cases = [Case("reinforce"), Case("laboratory_own_mean")]
    right, wrong = measure(t, cases, episodes=64, group_size=4, repetitions=300, seed=0)
    assert right["angle"][1] == right["bias"][1] == 0.0
    assert wrong["angle"][1] > 0 and wrong["bias"][1] > 0.3


def test_intervals_hold_the_exact_figures(trajectories):
    t = trajectories("retry")
    cases = [Case("grpo"), Case("turn_index"), Case("rloo")]
    found = measure(t, cases, episodes=8, group_size=8, repetitions=400, seed=3)
    for case, figures in zip(cases, found, strict=True):
        mean, covariance = exact_expectation(t, case, 8)
        noise = np.trace(covariance) / (mean @ mean)
        bias = np.linalg.norm(mean - gradient(t)) / np.linalg.norm(gradient(t))
        for name, exact in (("angle", angle(mean, gradient(t))), ("noise", noise), ("bias", bias)):
            assert figures[name][1] - 1e-9 <= exact <= figures[name][2], (case, name)


def test_a_batch_is_drawn_by_groups_of_one_task(trajectories):
    t = trajectories("two tasks")
    chosen, group = draw(t, np.random.default_rng(0), 500, 8, 4)
    tasks = t.task[chosen].reshape(500, 2, 4)
    assert group.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert (tasks == tasks[:, :, :1]).all() and 0.4 < tasks.mean() < 0.6
    shares = np.bincount(chosen.ravel(), minlength=t.probability.size) / chosen.size
    assert np.abs(shares - t.probability).max() < 0.02
