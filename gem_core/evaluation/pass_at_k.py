"""pass@k and pass^k of one task, estimated without bias from its samples."""

from __future__ import annotations

from math import comb


def pass_at_k(samples: int, successes: int, k: int) -> float:
    """Return the share of sets of ``k`` samples of a task with at least one success.

    It is the unbiased estimator of M. Chen et al. ("Evaluating large language models trained on
    code", 2021, section 2.1), computed with whole numbers.

    Raises:
        ValueError: the counts are impossible.

    >>> pass_at_k(4, 1, 2)
    0.5
    """
    _check(samples, successes, k)
    return 1 - comb(samples - successes, k) / comb(samples, k)


def pass_hat_k(samples: int, successes: int, k: int) -> float:
    """Return the share of sets of ``k`` samples that all succeeded, pass^k.

    See S. Yao et al. ("tau-bench", 2024, section 4). The arguments are those of `pass_at_k`.

    >>> pass_hat_k(4, 2, 2) == 1 / 6
    True
    """
    _check(samples, successes, k)
    return comb(successes, k) / comb(samples, k)


def _check(samples: int, successes: int, k: int) -> None:
    if not 0 <= successes <= samples or not 1 <= k <= samples:
        raise ValueError(f"{successes} successes of {samples} samples, k = {k}: impossible.")
