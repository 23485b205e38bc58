#!/usr/bin/env python3
"""Write ``benchmarks/throughput/math_pairs.jsonl``: answers, gold answers, math-verify's verdicts.

Three quarters of the pairs are numbers, like most answers of the mathematical data sets; the others
are algebra, intervals, sets, text and malformed LaTeX. All are made here by rule.
"""

from __future__ import annotations

import json
import logging
from fractions import Fraction
from pathlib import Path
from random import Random

from math_verify import parse, verify

OUT = Path(__file__).resolve().parent.parent / "benchmarks" / "throughput" / "math_pairs.jsonl"
NUMBERS = 480
OTHERS = 160


def written(r: Random, value: Fraction) -> str:
    """Return a number in one of the notations that people and models use."""
    sign = "-" if value < 0 else ""
    top = abs(value.numerator)
    bottom = value.denominator
    ways = [str(value), f"{sign}\\frac{{{top}}}{{{bottom}}}", f"{sign}\\dfrac{{{top}}}{{{bottom}}}"]
    if bottom == 1:
        ways = [str(value.numerator)] * 4 + [f"{value.numerator:,}", f"{value.numerator}.0"]
    elif 1000 % bottom == 0:
        ways += [f"{float(value):g}"] * 2
    return r.choice(ways)


def number(r: Random) -> Fraction:
    """Draw the value of an answer."""
    kind = r.random()
    if kind < 0.6:
        return Fraction(r.randint(-20, 200))
    if kind < 0.75:
        return Fraction(r.randint(1000, 2_000_000))
    return Fraction(r.randint(-40, 40), r.choice((2, 3, 4, 5, 7, 8, 9, 10, 16, 25, 100)))


def number_pair(r: Random) -> tuple[str, str]:
    """Return (answer, gold), which are equal in about half of the cases."""
    gold = number(r)
    answer = gold if r.random() < 0.5 else r.choice((number(r), gold + 1, -gold, gold * 10))
    return written(r, answer), written(r, gold)


OTHER: tuple[tuple[str, ...], ...] = (
    # Each tuple: a gold answer and answers to compare with it.
    ("x^2+2x+1", "(x+1)^2", "x^2 + 1 + 2x", "x^2+2x", "x^2+2x-1"),
    ("2\\sqrt{3}", "\\sqrt{12}", "\\sqrt{3}\\cdot 2", "3\\sqrt{2}", "3.4641016", "2\\sqrt3"),
    ("\\frac{\\pi}{4}", "\\pi/4", "0.25\\pi", "\\frac{\\pi}{2}", "45^\\circ", "0.7853981"),
    ("(1,2)", "(1, 2)", "[1,2]", "(2,1)", "1<x<2", "\\left(1,2\\right)"),
    ("(-\\infty, 3]", "x \\le 3", "(-\\infty,3)", "x<3", "(-\\infty,3]"),
    ("\\{1,2,3\\}", "\\{3,2,1\\}", "1,2,3", "{1,2}", "1, 2, 3"),
    ("x=5", "5", "x = 5", "y=5", "x=6"),
    ("1,-1", "-1,1", "\\pm 1", "1", "-1, 1", "1 \\text{ and } -1"),
    ("50\\%", "50", "0.5", "\\frac{1}{2}", "50 \\%", "5\\%"),
    ("\\text{A}", "A", "(A)", "B", "\\text{(A)}", "\\mathrm{A}"),
    ("\\text{yes}", "yes", "Yes", "no", "\\text{no}"),
    ("12\\text{ cm}", "12", "12 cm", "12\\,\\text{cm}", "0.12\\text{ m}", "13\\text{ cm}"),
    ("e^{2}", "e^2", "\\exp(2)", "7.389056", "2e"),
    ("\\ln 2", "\\log 2", "\\ln(2)", "0.693147", "\\frac{\\ln 4}{2}"),
    ("3+4i", "4i+3", "3-4i", "5", "3 + 4 i"),
    (
        "\\begin{pmatrix}1\\\\2\\end{pmatrix}",
        "\\begin{pmatrix}1\\\\2\\end{pmatrix}",
        "\\begin{pmatrix}2\\\\1\\end{pmatrix}",
        "(1,2)",
    ),
    ("2^{10}", "1024", "2^10", "1000", "32^2"),
    ("\\frac{x+1}{x-1}", "(x+1)/(x-1)", "1+\\frac{2}{x-1}", "\\frac{x-1}{x+1}"),
    ("10!", "3628800", "10 !", "9!\\cdot 10", "3628801"),
    ("\\sin^2 x", "1-\\cos^2 x", "\\cos^2 x", "(\\sin x)^2"),
    ("0.333333", "1/3", "\\frac{1}{3}", "0.3333", "0.33333333"),
    ("3.14159", "\\pi", "3.1416", "3.14159", "3.141590001"),
    ("120", "120^\\circ", "120 degrees", "\\$120", "120.", "2\\cdot 60", "one hundred twenty"),
    (
        "7",
        "7.0000001",
        "7.00",
        "07",
        "+7",
        "\\boxed{7}",
        "7 \\text{ apples}",
        "7\\",
        "\\frac{14",
        "",
    ),
    ("y=2x+3", "2x+3", "y = 3+2x", "y=2x-3", "y-2x=3"),
    ("a+b+c", "c+b+a", "a+b", "abc"),
    ("1.5\\times 10^{3}", "1500", "1.5 \\cdot 10^3", "1.5e3", "15000"),
    ("2:3", "\\frac{2}{3}", "2/3", "3:2", "2 : 3"),
    ("\\sqrt[3]{2}", "2^{1/3}", "2^{\\frac{1}{3}}", "\\sqrt{2}"),
    ("x \\in [0, 1]", "[0,1]", "0 \\le x \\le 1", "(0,1)"),
)


def verdict(answer: str, gold: str) -> bool:
    """Return math-verify's verdict on two boxed answers, without a time limit."""
    golds = parse(f"\\boxed{{{gold}}}", parsing_timeout=None)
    answers = parse(f"\\boxed{{{answer}}}", parsing_timeout=None)
    return bool(verify(golds, answers, timeout_seconds=None))


def main() -> None:
    """Write the file."""
    logging.disable(logging.WARNING)
    r = Random(11)
    pairs: dict[tuple[str, str], None] = {}
    while len(pairs) < NUMBERS:
        pairs[number_pair(r)] = None
    others = [(a, row[0]) for row in OTHER for a in row[1:]]
    others += [(row[0], row[0]) for row in OTHER]
    for pair in others[:OTHERS]:
        pairs[pair] = None
    rows = [{"answer": a, "gold": g, "right": verdict(a, g)} for a, g in pairs]
    OUT.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    print(f"{len(rows)} pairs, {sum(row['right'] for row in rows)} of them right")


if __name__ == "__main__":
    main()
