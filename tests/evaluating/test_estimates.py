"""pass@k, pass^k, the clustered interval, the paired test: each against its definition."""

from __future__ import annotations

import math
import random
from itertools import combinations, product

import numpy as np
import pytest

from gem_core.evaluation import student
from gem_core.evaluation.intervals import clustered_interval
from gem_core.evaluation.paired import EXACT, sign_flip_p
from gem_core.evaluation.pass_at_k import pass_at_k, pass_hat_k
from gem_core.evaluation.stats import wilson

RANDOM = random.Random(0)
CASES = [
    (n, c, k) for n in (RANDOM.randint(1, 10) for _ in range(40))
    for c in [RANDOM.randint(0, n)] for k in [RANDOM.randint(1, n)]
]  # fmt: skip


@pytest.mark.parametrize(("samples", "successes", "k"), CASES)
def test_passes_are_shares_of_all_sets_of_k_samples(samples, successes, k):
    outcomes = [index < successes for index in range(samples)]
    sets = list(combinations(outcomes, k))
    assert pass_at_k(samples, successes, k) == pytest.approx(sum(map(any, sets)) / len(sets))
    assert pass_hat_k(samples, successes, k) == pytest.approx(sum(map(all, sets)) / len(sets))


def test_passes_are_unbiased():
    """The mean of the estimator over the binomial is 1 - (1 - p)^k, and p^k."""
    n, k, p = 7, 3, 0.3
    weights = [math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
    mean = sum(w * pass_at_k(n, c, k) for c, w in enumerate(weights))
    assert mean == pytest.approx(1 - (1 - p) ** k)
    mean = sum(w * pass_hat_k(n, c, k) for c, w in enumerate(weights))
    assert mean == pytest.approx(p**k)


def test_many_samples_lose_no_precision():
    assert pass_at_k(10_000, 1, 5_000) == pytest.approx(0.5, abs=1e-12)


@pytest.mark.parametrize("counts", [(3, 4, 1), (3, -1, 1), (3, 1, 4), (3, 1, 0)])
def test_impossible_counts_are_refused(counts):
    for function in (pass_at_k, pass_hat_k):
        with pytest.raises(ValueError, match="impossible"):
            function(*counts)


def coverage(tasks, samples, draw_rates, environments=1, repeats=500):
    """Share of simulated evaluations whose interval has the true mean."""
    rng = np.random.default_rng(5)
    hits = 0
    for seed in range(repeats):
        groups = [
            rng.binomial(samples, draw_rates(rng, tasks)) / samples for _ in range(environments)
        ]
        low, high = clustered_interval(groups, proportion=True, seed=seed)
        hits += low <= 0.4 <= high
    return hits / repeats


@pytest.mark.parametrize(
    ("tasks", "samples", "concentration", "environments"),
    [(60, 4, 1.0, 1), (100, 8, 0.3, 1), (40, 2, 5.0, 3)],
)
def test_the_interval_covers_95_percent(monkeypatch, tasks, samples, concentration, environments):
    monkeypatch.setattr("gem_core.evaluation.intervals.RESAMPLES", 1000)

    def rates(rng, count):
        return rng.beta(0.4 * concentration, 0.6 * concentration, count)

    assert abs(coverage(tasks, samples, rates, environments) - 0.95) <= 0.02


def test_samples_of_one_task_do_not_make_the_interval_narrower():
    tasks = [0.0, 1.0] * 20
    low, high = clustered_interval([tasks])
    naive = wilson(20 * 50, 40 * 50)
    assert high - low > 3 * (naive[1] - naive[0])


def test_environments_are_not_resampled():
    """Two environments whose tasks are all alike: the mean of the two is certain."""
    assert clustered_interval([[0.2] * 30, [0.8] * 30]) == pytest.approx((0.5, 0.5))


def test_equal_values():
    for value in (0.0, 1.0):
        expected = pytest.approx(wilson(10 * int(value), 10))
        assert clustered_interval([[value] * 10], proportion=True) == expected
    assert clustered_interval([[0.3] * 10]) == (0.3, 0.3)
    assert clustered_interval([[1.0] * 10]) == (1.0, 1.0)
    with pytest.raises(ValueError, match="at least one task"):
        clustered_interval([[]])


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (9, 2.2622), (30, 2.0423), (999, 1.9623)],
)
def test_quantiles_of_t_are_those_of_the_tables(freedom, quantile):
    assert student.quantile(0.975, freedom) == pytest.approx(quantile, abs=6e-5)


@pytest.mark.parametrize("seed", range(6))
def test_the_exact_test_counts_every_assignment_of_signs(seed):
    rng = random.Random(seed)
    values = [rng.choice([-1, -0.5, 0, 0.5, 1, 1]) for _ in range(8)]
    sums = [
        abs(sum(map(math.prod, zip(values, s, strict=True)))) for s in product((1, -1), repeat=8)
    ]
    expected = sum(total >= abs(sum(values)) - 1e-9 for total in sums) / len(sums)
    assert sign_flip_p(values) == pytest.approx(expected)


def test_the_random_test_is_near_the_exact_one(monkeypatch):
    values = [0.5, -0.25, 1.0, 0.5, -0.5, 0.25, 1.0, 0.75, -0.25, 0.5]
    exact = sign_flip_p(values)
    monkeypatch.setattr("gem_core.evaluation.paired.EXACT", EXACT - 13)
    assert sign_flip_p(values) == pytest.approx(exact, abs=0.01)
    assert sign_flip_p([1.0] * 60) > 0


def test_equal_models_are_rarely_told_apart():
    rng = np.random.default_rng(2)
    values = [sign_flip_p(rng.normal(size=12)) for _ in range(300)]
    assert np.mean(np.asarray(values) <= 0.05) == pytest.approx(0.05, abs=0.035)
