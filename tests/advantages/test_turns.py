"""Spans and tokens: a round trip, and what is refused."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem_core.advantages import runs_of_ones, spread, spread_rows
from gem_core.errors import AdvantageError


@given(st.lists(st.integers(0, 1), max_size=60))
def test_spread_of_ones_over_the_runs_gives_the_mask_back(mask):
    spans = runs_of_ones(mask)
    assert spread(np.ones(len(spans)), spans, len(mask)).tolist() == mask
    assert all(end < start for (_, end), (start, _) in pairwise(spans))


@given(st.lists(st.lists(st.booleans(), min_size=9, max_size=9), max_size=8), st.data())
def test_spread_rows_equals_spread_row_by_row(masks, data):
    spans = [runs_of_ones(np.array(m, dtype=np.int64)) for m in masks]
    total = sum(map(len, spans))
    numbers = data.draw(st.lists(st.floats(-3, 3), min_size=total, max_size=total))
    rows = spread_rows(numbers, spans, 9)
    assert rows.shape == (len(masks), 9)
    start = 0
    for row, row_spans in zip(rows, spans, strict=True):
        end = start + len(row_spans)
        assert np.array_equal(row, spread(numbers[start:end], row_spans, 9))
        start = end


def test_masks_of_any_dtype():
    for dtype in (bool, np.int64, np.float32, np.uint8):
        assert runs_of_ones(np.array([1, 1, 0, 1], dtype=dtype)) == [(0, 2), (3, 4)]
    assert runs_of_ones([]) == []


@pytest.mark.parametrize("mask", [[0, 2], [0.5], [[1, 0]], [np.nan]])
def test_values_other_than_zeros_and_ones_are_refused(mask):
    with pytest.raises(AdvantageError, match="zeros and ones"):
        runs_of_ones(mask)


def test_an_empty_span_goes_nowhere():
    assert spread([5.0, 1.0], [(1, 1), (1, 2)], 3).tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize(
    "spans", [[(-1, 1), (2, 3)], [(0, 2), (1, 3)], [(2, 3), (0, 1)], [(0, 1), (2, 5)], [(1, 0)] * 2]
)
def test_spans_that_do_not_fit(spans):
    with pytest.raises(AdvantageError, match="does not fit"):
        spread([1.0, 2.0], spans, 4)


def test_counts_that_differ():
    with pytest.raises(AdvantageError, match="1 spans"):
        spread([1.0, 2.0], [(0, 1)], 4)
    with pytest.raises(AdvantageError, match="1 spans"):
        spread_rows([1.0, 2.0], [[(0, 1)], []], 4)
