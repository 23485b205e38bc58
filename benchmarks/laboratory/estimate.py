"""Bias and noise of an estimator: by Monte Carlo with intervals, exactly on small batches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement
from math import comb, lgamma
from typing import Any

import numpy as np
from batches import Case, batch_gradient, draw
from exact import IntArray, Trajectories, gradient
from processes import FloatArray

MOST_BATCHES = 25_000
"""The largest number of batches that `exact_expectation` goes through."""
RESAMPLES = 400
LEVEL = 0.95


def sample_gradients(t: Trajectories, case: Case, chosen: IntArray, group: IntArray) -> FloatArray:
    """Return the gradient of every batch, float64 [repetitions, K]."""
    return np.array([batch_gradient(t, row, group, case) for row in chosen])


def exact_expectation(t: Trajectories, case: Case, episodes: int) -> tuple[FloatArray, FloatArray]:
    """Return mean [K] and covariance [K, K] of a batch's gradient, over all batches.

    The batch is one group of ``episodes`` episodes of one task. An estimator does not read the
    order of the episodes, so that each multiset of trajectories is computed once, with its
    probability.

    Raises:
        ValueError: the process has several tasks, or there are too many batches.
    """
    kinds = t.probability.size
    count = comb(kinds + episodes - 1, episodes)
    if np.unique(t.task).size > 1 or count > MOST_BATCHES:
        raise ValueError(f"{count} batches of {episodes}: take a smaller batch, and one task.")
    group = np.zeros(episodes, dtype=np.int64)
    weights, gradients = [], []
    for chosen, weight in _multisets(t.probability, episodes):
        weights.append(weight)
        gradients.append(batch_gradient(t, chosen, group, case))
    weight_of, each = np.array(weights), np.array(gradients)
    mean = weight_of @ each
    return mean, (each - mean).T @ (weight_of[:, None] * (each - mean))


def describe(gradients: FloatArray, exact: FloatArray, rng: np.random.Generator) -> dict[str, Any]:
    """Compare sampled gradients [R, K] with the exact one [K]; every figure has an interval.

    Returns:
        ``bias``: norm of (mean - exact) / norm of exact. ``angle``: degrees between the mean and
        the exact gradient. ``noise``: trace of the covariance / squared norm of the mean.
        ``batch_angle``: mean over batches of the degrees between a batch's gradient and the exact
        one (90 for a gradient of 0). From the first three what noise adds to a mean of R batches is
        taken off; each is ``[figure, low, high]`` with a bootstrap interval of 95 %.
    """
    count = gradients.shape[0]
    weights = rng.multinomial(count, np.full(count, 1.0 / count), size=RESAMPLES) / count
    angles = _degrees(gradients, exact)
    figures = _figures(np.full((1, count), 1.0 / count), gradients, exact, 1.0)
    resampled = _figures(weights, gradients, exact, 2.0)
    resampled["batch_angle"] = weights @ angles
    figures["batch_angle"] = np.array([angles.mean()])
    tails = [50 * (1 - LEVEL), 50 * (1 + LEVEL)]
    return {
        name: [float(figures[name][0]), *np.percentile(resampled[name], tails).tolist()]
        for name in figures
    }


def measure(
    t: Trajectories,
    cases: list[Case],
    *,
    episodes: int,
    group_size: int,
    repetitions: int,
    seed: int,
) -> list[dict[str, Any]]:
    """Measure cases on the same drawn batches; one row of `describe` per case."""
    chosen, group = draw(t, np.random.default_rng(seed), repetitions, episodes, group_size)
    exact = gradient(t)
    return [
        describe(sample_gradients(t, case, chosen, group), exact, np.random.default_rng(seed))
        for case in cases
    ]


def angle(a: FloatArray, b: FloatArray) -> float:
    """Return the degrees between two vectors."""
    return float(_degrees(a[None], b)[0])


def _figures(
    weights: FloatArray, gradients: FloatArray, exact: FloatArray, times: float
) -> dict[str, FloatArray]:
    """Return bias, angle and noise under weights [S, R] of the sampled gradients [R, K].

    ``times`` the variance of a mean is taken off: once from the mean of the sample. A resampled
    mean has it twice: from the sample, and from the resampling.
    """
    count = gradients.shape[0]
    size = np.linalg.norm(exact)
    along = exact / size
    onto = gradients @ along
    means, means_onto = weights @ gradients, weights @ onto
    square = (means**2).sum(axis=1)
    trace = (weights @ (gradients**2).sum(axis=1) - square) / (count - 1)  # of a mean of R
    across = trace - (weights @ onto**2 - means_onto**2) / (count - 1)
    error = np.maximum(((means - exact) ** 2).sum(axis=1) - times * trace, 0.0)
    turned = np.maximum(square - means_onto**2 - times * across, 0.0)
    whole = np.maximum(square - times * trace, 1e-300)
    return {
        "bias": np.sqrt(error) / size,
        "angle": np.degrees(np.arctan2(np.sqrt(turned), means_onto)),
        "noise": trace * count / whole,
    }


def _degrees(vectors: FloatArray, exact: FloatArray) -> FloatArray:
    """Return the degrees between vectors [R, K] and one [K]; 90 for a vector of 0."""
    along = exact / np.linalg.norm(exact)
    onto = vectors @ along
    off = np.linalg.norm(vectors - np.outer(onto, along), axis=1)
    return np.asarray(
        np.degrees(np.where((onto == 0) & (off == 0), np.pi / 2, np.arctan2(off, onto)))
    )


def _multisets(probability: FloatArray, episodes: int) -> Iterator[tuple[IntArray, float]]:
    """Yield every multiset of trajectories, sorted, and its probability."""
    logs = np.log(probability)
    kinds = range(probability.size)
    for members in combinations_with_replacement(kinds, episodes):
        chosen = np.array(members)
        counts = np.bincount(chosen, minlength=probability.size)
        ways = lgamma(episodes + 1) - sum(lgamma(n + 1) for n in counts)
        yield chosen, float(np.exp(ways + logs[chosen].sum()))
