"""Verdicts without math-verify equal math-verify's, on edge cases and on random pairs."""

from __future__ import annotations

import logging
from collections import defaultdict
from functools import cache
from random import Random
from typing import Any

import pytest
from math_verify import parse, verify

from gem_core.envs.graders._math_answers import understand
from gem_core.envs.graders._math_fast import fast_verdict
from gem_core.envs.graders._math_read import read


@cache
def parsed(text: str) -> Any:
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    return parse(f"\\boxed{{{text}}}", parsing_timeout=60)


def reference(answer: str, gold: str) -> bool:
    return bool(verify(parsed(gold), parsed(answer), timeout_seconds=60))


class Writer:
    """Writes random answers; math-verify reads some of them in an unexpected way."""

    def __init__(self, seed: int):
        self.r = Random(seed)
        self.letters = ""

    def number(self) -> str:
        n = self.r.randint(-3, 9) if self.r.random() < 0.8 else self.r.randint(-50, 1500)
        ways = [str(n)] * 5 + [f"{n}.5", f"{n}.1", f"\\frac{{{n}}}{{{self.r.randint(1, 4)}}}"]
        return self.r.choice(ways)

    def atom(self) -> str:
        if self.letters and self.r.random() < 0.5:
            return self.r.choice(self.letters)
        return self.r.choice([str(self.r.randint(0, 12))] * 4 + ["\\pi", "0.25", "1.2", "e", "4!"])

    def expression(self, depth: int) -> str:
        if depth == 0:
            return self.atom()
        a, b = (self.expression(depth - 1) for _ in range(2))
        ways = [f"{a}+{b}", f"{a}-{b}", f"{a} {b}", f"{a}{b}", f"{a} \\cdot {b}", f"{a}/{b}"]
        ways += [f"({a})({b})", f"({a})^{self.r.choice('23')}", f"{a}^{{{self.r.randint(-2, 3)}}}"]
        ways += [f"\\frac{{{a}}}{{{b}}}"] * 3 + [f"-({a})", f"{a}\\left({b}\\right)", f"\\ln({a})"]
        number = self.r.randint(1, 20)
        ways += [f"\\sqrt{{{number}}}", f"{a}\\sqrt{{{number}}}", f"\\sqrt[3]{{{number}}}"]
        ways += [f"\\sin^2 {a}", f"\\cos({a})", f"\\cos^2 {a}", f"\\sin {a}", f"\\log {number}"]
        return self.r.choice(ways)

    def whole(self) -> str:
        self.letters = self.r.choice(["", "x", "x", "xy", "abc", "tm", "ik"])
        return self.expression(self.r.choice([1, 2, 2]))

    def listed(self) -> str:
        parts = self.r.choice([",", ", "]).join(
            self.number() for _ in range(self.r.choice((2, 2, 3)))
        )
        brackets = ["()", "()", "[]", "[)", "(]", ("\\{", "\\}"), ("\\left(", "\\right)"), ("", "")]
        opening, closing = self.r.choice(brackets)
        return opening + parts + closing

    def other(self) -> str:
        n = self.number()
        word = self.r.choice(["A", "B", "yes", "no", "Yes", "even"])
        units = ["\\text{ cm}", " cm", "\\%", "^\\circ", " degrees", "m", "\\text{ and }", " days"]
        ways = [n + self.r.choice(units) for _ in range(4)] + [
            word,
            f"\\text{{{word}}}",
            f"({word})",
        ]
        ways += [f"x={n}", f"y = {self.whole()}", f"{self.r.randint(1, 4)}:{self.r.randint(1, 4)}"]
        ways += [f"\\begin{{pmatrix}}{n}\\\\{self.r.randint(1, 3)}\\end{{pmatrix}}", f"\\$ {n}", n]
        return self.r.choice(ways)


# Each pair in both orders. First answers that math-verify reads in an unexpected way.
EDGES = [
    ("2 3", "6"),
    ("1\\frac{1}{2}", "\\frac{3}{2}"),
    ("3(4)", "12"),
    ("2m", "2"),
    ("x^{2} s", "x^{2}"),
    ("f(x)", "fx"),
    ("\\pi(2)", "2\\pi"),
    ("k^{-1}(t)", "\\frac{t}{k}"),
    ("\\frac{1}{2}34", "17"),
    ("x^\\frac{4}{2}", "x^2"),
    ("\\sin 2\\cdot 3", "3\\sin 2"),
    ("1/2x", "\\frac{x}{2}"),
    ("1x", "x"),
    ("3\\times e 7", "7"),
    ("i^2", "-1"),
    ("(1 + i)i", "-1+i"),
    ("\\frac{616}{3.0}", "\\frac{616}{3}"),
    ("[-3,\\sqrt{2.0})", "[-3,\\sqrt{2})"),
    ("\\sin(0.5)", "\\sin\\frac{1}{2}"),
    ("0.1\\cdot 3", "\\frac{3}{10}"),
    ("100,200", "200,100"),
    ("1,234", "(1,234)"),
    ("(2,1]", "[2,1)"),
    ("(1,1)", "\\{1\\}"),
    ("5\\text{ and }6", "5"),
    # Then common answers: equal ones, and nearly equal ones.
    ("(x+1)^2", "x^2+2x+1"),
    ("2\\sqrt{3}", "\\sqrt{12}"),
    ("\\frac{1}{\\sqrt{2}}", "\\frac{\\sqrt{2}}{2}"),
    ("\\frac{x^2-1}{x-1}", "x+1"),
    ("\\sin^2 x", "1-\\cos^2 x"),
    ("\\pi", "3.14159"),
    ("3.1415927", "\\pi"),
    ("y=2x+3", "2x+3"),
    ("y=5", "x=5"),
    ("(-\\infty, 3]", "(-\\infty,3)"),
    ("\\{1,2,3\\}", "3, 2, 1"),
    ("1,-1", "1"),
    ("50\\%", "0.5"),
    ("\\begin{pmatrix}1\\\\2\\end{pmatrix}", "\\begin{pmatrix}2\\\\1\\end{pmatrix}"),
    ("\\text{(A)}", "a"),
]


@pytest.mark.parametrize(("answer", "gold"), EDGES)
def test_edges(answer: str, gold: str) -> None:
    for pair in ((answer, gold), (gold, answer), (answer, answer)):
        fast = fast_verdict(*pair)
        assert fast is None or fast == reference(*pair), pair


def check(pairs: list[tuple[str, str]], at_least: int) -> None:
    right = 0
    for pair in pairs:
        fast = fast_verdict(*pair)
        if fast is not None:
            assert fast == reference(*pair), pair
            right += fast
    assert right >= at_least


def test_random_expressions() -> None:
    writer = Writer(5)
    texts = {writer.whole() for _ in range(6000)}
    alike: dict[float, list[str]] = defaultdict(list)
    for text in sorted(texts):
        form = read(text)
        if form is not None:
            alike[round(form.value(), 7)].append(text)
    groups = [group for group in alike.values() if len(group) > 1]
    pairs = [tuple(writer.r.sample(writer.r.choice(groups), 2)) for _ in range(150)]
    pairs += [tuple(map(writer.r.choice, writer.r.sample(groups, 2))) for _ in range(60)]
    check(pairs, 60)


def test_random_lists_units_and_words() -> None:
    writer = Writer(6)
    pairs: list[tuple[str, str]] = []
    for write in (writer.listed, writer.other):
        texts = [t for t in (write() for _ in range(400)) if understand(t) is not None]
        pairs += [(writer.r.choice(texts), writer.r.choice(texts)) for _ in range(150)]
        pairs += [(t, t.replace(",", ", ").replace("\\text", "\\mathrm")) for t in texts[:50]]
    check(pairs, 100)
