"""Exact match and F1."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem_core.envs.graders import exact_match, f1_score, normalise_answer


@pytest.mark.parametrize(
    ("answer", "golds", "exact", "f1"),
    [
        ("Paris", ["paris"], True, 1.0),
        ("The  PARIS.", ["Paris"], True, 1.0),
        ("Anthem", ["them"], False, 0.0),
        ("in Paris", ["Paris"], False, 2 / 3),
        ("U.S.A.", ["USA", "United States"], True, 1.0),
        ("blue blue", ["blue"], False, 2 / 3),
        ("the", ["a"], True, 1.0),
        ("", ["x"], False, 0.0),
        ("x", [], False, 0.0),
    ],
)
def test_known_pairs(answer: str, golds: list[str], exact: bool, f1: float) -> None:
    assert exact_match(answer, golds) is exact
    assert f1_score(answer, golds) == pytest.approx(f1)


@given(st.text(), st.text())
def test_exact_match_is_full_overlap(a: str, b: str) -> None:
    assert normalise_answer(normalise_answer(a)) == normalise_answer(a)
    assert 0 <= f1_score(a, [b]) <= 1
    assert f1_score(a, [b]) == f1_score(b, [a])
    if exact_match(a, [b]):
        assert f1_score(a, [b]) == 1
