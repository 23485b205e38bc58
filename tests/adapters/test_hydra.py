"""The text of overrides; the tests of the trainers that use hydra read it back."""

from __future__ import annotations

import pytest

from gem_core.adapters.hydra import override


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "k=null"),
        (True, "k=true"),
        ([0.9, 0.95], "k=[0.9, 0.95]"),
        ("a b", "k='a b'"),
        ("it's", r"k='it\'s'"),
        ("a\\b", r"k='a\b'"),
        ("end\\", r"k='end\\'"),
    ],
)
def test_values(value, text):
    assert override("k", value) == text


def test_a_deleted_key_has_no_value():
    assert override("~a.b", None) == "~a.b"
