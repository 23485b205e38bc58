"""Aggregates over baselines and seeds, against figures that rliable 1.2.0 gave for these tables."""

from __future__ import annotations

import numpy as np
import pytest

from gem_core.errors import GemError
from gem_core.evaluation.aggregates import (
    interquartile_mean,
    performance_profile,
    probability_of_improvement,
    stratified_interval,
)

OURS = np.array(
    [
        [0.733, 0.621, 0.541, 0.704, 0.873, 0.48],
        [0.906, 0.827, 0.43, 0.664, 0.914, 0.402],
        [0.418, 0.657, 0.689, 0.562, 0.883, 0.398],
        [0.807, 0.851, 0.851, 0.52, 0.598, 0.695],
        [0.567, 0.909, 0.768, 0.752, 0.717, 0.8],
    ]
)
THEIRS = np.array(
    [
        [0.906, 0.602, 0.919, 0.812, 0.564, 0.758],
        [0.59, 0.564, 0.727, 0.562, 0.487, 0.697],
        [0.7, 0.509, 0.705, 0.565, 0.791, 0.753],
    ]
)


def test_interquartile_mean():
    assert interquartile_mean(OURS) == pytest.approx(0.6975625, abs=1e-12)
    assert interquartile_mean(THEIRS) == pytest.approx(0.6661, abs=1e-12)


def test_probability_of_improvement():
    """Two of the pairs are ties."""
    assert probability_of_improvement(OURS, THEIRS) == pytest.approx(0.5333333333333333, abs=1e-12)
    both = probability_of_improvement(OURS, THEIRS) + probability_of_improvement(THEIRS, OURS)
    assert both == pytest.approx(1)


def test_performance_profile():
    expected = [1.0, 0.8333333333333334, 0.6666666666666666, 0.3]
    assert performance_profile(OURS, [0.2, 0.5, 0.6, 0.8]) == pytest.approx(expected, abs=1e-12)


def test_the_stratified_interval():
    """50,000 resamples of rliable gave 0.6292 and 0.7616; the resamples are others here."""
    low, high = stratified_interval(interquartile_mean, OURS, resamples=20_000)
    assert (low, high) == pytest.approx((0.62919, 0.76163), abs=0.003)


def test_seeds_are_drawn_within_their_baseline():
    """Where all seeds of a baseline agree, no draw changes anything, however baselines differ."""
    table = np.tile([0.1, 0.5, 0.9, 0.3], (4, 1))
    exact = interquartile_mean(table)
    assert stratified_interval(interquartile_mean, table) == (exact, exact)


def test_one_seed_has_no_interval():
    with pytest.raises(GemError, match="two seeds"):
        stratified_interval(probability_of_improvement, OURS, THEIRS[:1])


def test_other_baselines_are_not_compared():
    with pytest.raises(GemError, match="baselines"):
        probability_of_improvement(OURS, THEIRS[:, :5])
