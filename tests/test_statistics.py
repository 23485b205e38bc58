"""Wilson's interval against published and exact properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem_core.evaluation.stats import wilson


@pytest.mark.parametrize(
    ("successes", "count", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),  # Newcombe, Statistics in Medicine 17 (1998), table I, method 3
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_published_values(successes, count, low, high):
    interval = wilson(successes, count)
    assert interval == pytest.approx((low, high), abs=5e-5)


@given(count=st.integers(1, 5000), data=st.data())
def test_interval_contains_the_share_and_mirrors(count, data):
    successes = data.draw(st.integers(0, count))
    low, high = wilson(successes, count)
    assert 0 <= low <= successes / count <= high <= 1
    mirrored = wilson(count - successes, count)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-12)


@pytest.mark.parametrize(("successes", "count"), [(1, 0), (-1, 5), (6, 5)])
def test_impossible_counts(successes, count):
    with pytest.raises(ValueError, match="impossible"):
        wilson(successes, count)


@pytest.mark.parametrize("count", [1, 3, 40, 200, 300, 1000])
def test_the_interval_of_none_and_of_all_contains_the_share(count):
    for successes in (0, count):
        low, high = wilson(successes, count)
        assert low <= successes / count <= high
