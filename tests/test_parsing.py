"""Answers are found in any text, the last one counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem_core.errors import UnknownNameError
from gem_core.parsing import FORMATS, boxed, get_parser, plain, render, tagged


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{7}", "7"),
        (r"I think \boxed{ 7 } is it", "7"),
        (r"\boxed{1} and \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\boxed{3}}", "3"),
        (r"\boxed{1} \boxed{2", "1"),
        (r"\boxed{\{1\}}", r"\{1\}"),
        (r"\boxed{}", ""),
        (r"\boxed{a", None),
        (r"boxed{7}", None),
        (r"\fbox{7}", None),
        ("7", None),
        ("", None),
    ],
)
def test_boxed(text: str, answer: str | None) -> None:
    assert boxed(text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>7</answer>", "7"),
        ("<answer>1</answer><answer> 2 </answer>", "2"),
        ("<answer>1</answer> <answer>2", "1"),
        ("</answer><answer>", None),
        ("7", None),
    ],
)
def test_tagged(text: str, answer: str | None) -> None:
    assert tagged(text) == answer


def test_plain() -> None:
    assert plain(" 7\n") == "7"
    assert plain(" \n") is None


@pytest.mark.parametrize("name", list(FORMATS))
@given(
    before=st.text(),
    answer=st.text(alphabet=st.characters(exclude_characters="{}<>\\"), min_size=1).filter(
        lambda s: s.strip() == s
    ),
)
def test_what_is_rendered_is_parsed(name: str, before: str, answer: str) -> None:
    text = render(answer, name)
    assert get_parser(name)(text if name == "plain" else before + text) == answer


@given(st.lists(st.sampled_from(["\\boxed{", "{", "}", "\\", "x", "<answer>", "</answer>"])))
def test_any_text_is_parsed_to_a_part_of_it(pieces: list[str]) -> None:
    text = "".join(pieces)
    for name in FORMATS:
        answer = get_parser(name)(text)
        assert answer is None or answer in text


def test_an_unknown_format_is_named() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'tag'"):
        get_parser("tags")
