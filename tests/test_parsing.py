"""Answers are found in any text, and the last one counts."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem_core.env.parsing import (
    FORMATS,
    boxed,
    form_parser,
    get_parser,
    plain,
    render,
    simple_answers,
    tagged,
)
from gem_core.errors import UnknownNameError


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
        (r"\boxed{}", None),
        (r"\boxed{5}, which is written within \boxed{}", "5"),
        (r"\boxed{5} in \boxed{ } or \boxed{\boxed{} }.", r"\boxed{}"),
        (r"\boxed{\frac{1}{2}} in \boxed{ }", r"\frac{1}{2}"),
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
        ("<answer>5</answer>, within <answer> </answer>", "5"),
        ("<answer>5</answer> and </answer>", "5"),
        ("<answer>no, <answer>5</answer>", "5"),
        ("<answer></answer>", None),
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


def test_simple_answers_come_last_first() -> None:
    text = r"\boxed{1} <answer>a</answer> \boxed{x_{1}} \boxed{} \boxed{ 2 } <answer>b</answer>"
    assert simple_answers(text) == ["2", "1"]
    assert simple_answers(text, "tag") == ["b", "a"]
    assert simple_answers(text, "plain") == []


@pytest.mark.parametrize(
    ("answer_format", "text", "answer"),
    [
        ("boxed", r"\boxed{a 1} \boxed{b 2} \boxed{b  3} \boxed{ c 4}", "b 2"),
        ("boxed", r"\boxed{a}", None),
        ("tag", "<answer>a 1</answer> <answer>1</answer>", "a 1"),
        ("plain", " a 1\n", "a 1"),
        ("plain", "say a 1", None),
    ],
)
def test_a_form_is_searched_in_all_answers(
    answer_format: str, text: str, answer: str | None
) -> None:
    assert form_parser(r"([a-z])\s(\d+)", answer_format)(text) == answer


def test_a_form_may_ignore_case_of_form_and_box() -> None:
    assert form_parser("(up)", ignore_case=True)(r"\BOXED{Up}") == "Up"
    assert form_parser("(up)")(r"\boxed{Up}") is None


@pytest.mark.parametrize("name", list(FORMATS))
def test_long_texts_take_linear_time(name: str) -> None:
    for piece in ("\\boxed{", "\\boxed{ }", "<answer>", "<answer> </answer>", "\\boxed{A "):
        text = piece * (2_000_000 // len(piece))
        begin = time.process_time()
        get_parser(name)(text)
        simple_answers(text, name)
        form_parser(r"([A-C])(?:\s*,)?\s*([A-C])", name)(text)
        assert time.process_time() - begin < 5


def test_an_unknown_format_is_named() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'tag'"):
        get_parser("tags")
