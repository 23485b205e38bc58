r"""Answers of common kinds, compared without algebra.

Numbers with a unit or a percent sign, simple expressions, ``x = 5``, tuples, intervals, sets and
matrices of numbers, choice letters and words. Each verdict is that of math-verify; where its
reading is unusual (``1,234`` is one number, a single letter is compared by name), there is no
verdict.
"""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from gem_core.envs.graders import _math_forms as forms
from gem_core.envs.graders._math_forms import Atom, Form, same
from gem_core.envs.graders._math_numbers import number
from gem_core.envs.graders._math_read import read


class Answer(NamedTuple):
    """An answer of one of the kinds.

    Attributes:
        kind: ``"value"``, ``"word"``, ``"percent"``, ``"matrix 2 3"``, ``"set"``, ``"()"``,
            ``"[)"`` and so on.
        parts: the values of the answer.
        name: the word, or the letter on the left of an equals sign.
    """

    kind: str
    parts: tuple[Form, ...] = ()
    name: str = ""


# Texts that math-verify does not read as a word or a unit.
_NO_WORD = re.compile(r"\b(?:and|or)\b|perc|pct|inf|sqrt", re.IGNORECASE)
_NUMBER = r"(-?[\d.,]+|-?\d+/\d+|-?\\[dt]?frac\{\d+\}\{\d+\})"
_MEASURED = re.compile(
    rf"{_NUMBER}(?: |\\,|\\ )*"
    r"(?:\\(?:text|mbox|mathrm|textrm|textbf)\{([A-Za-z ]{1,30})\}(?:\^\d)?"
    r"|(?:mm|cm|km|m|kg|g|feet|inches|degrees|hours?|minutes?|seconds?|days?|miles|units)"
    r"|\^(?:\\circ|\{\\circ\}))",
    re.ASCII,
)
_MONEY = re.compile(rf"\\\$ ?{_NUMBER}", re.ASCII)
_PERCENT = re.compile(r"(-?\d{1,6}) ?\\?%", re.ASCII)
_WORD = re.compile(
    r"\\(?:text|mathrm|textbf|textrm)\{(?:\(([A-Z])\)|([A-Za-z]{1,20}))\}"
    r"|\(([A-DF-HJ-Z])\)|([A-DF-HJ-Z])"
)
_RATIO = re.compile(r"(\d{1,6}) ?: ?([1-9]\d{0,5})", re.ASCII)
_EQUATION = re.compile(r"([abcghkmnpqrstuvwxyz]) ?=([^=,;<>]+)", re.ASCII)
_LIST = re.compile(r"(\\\{|[{(\[]|)((?:[^,;]+,)+[^,;]+?)(\\\}|[})\]]|)")
_THOUSANDS = re.compile(r", ?\d{3}")
_MATRIX = re.compile(r"\\begin\{([pb])matrix\}(.*)\\end\{\1matrix\}", re.DOTALL)
_INFINITY = forms.single(Atom("oo", 1e16))


def verdict(answer: str, gold: str) -> bool | None:
    r"""Return whether the answer is right, or ``None`` if that is not clear without algebra.

    >>> verdict(r"12\text{ cm}", "12"), verdict("(2,1)", "(1,2)"), verdict("|x|", "x")
    (True, False, None)
    """
    a = understand(answer)
    if a is None:
        return None
    if answer == gold:
        return True
    b = understand(gold)
    return None if b is None else _compare(a, b)


def understand(text: str) -> Answer | None:
    """Read an answer of one of the kinds; return ``None`` for any other."""
    if len(text) > 200 or not text:
        return None
    if (value := _quantity(text)) is not None:
        return Answer("value", (forms.number(value, int("." in text)),))
    if match := _PERCENT.fullmatch(text):
        return Answer("percent", (forms.number(int(match[1])),))
    if match := _WORD.fullmatch(text):
        word = next(filter(None, match.groups())).lower()
        return None if word in ("e", "i") or _NO_WORD.search(word) else Answer("word", name=word)
    if text.startswith("\\begin"):
        return _matrix(text)
    if "," in text:
        return _list(text)
    equation = _EQUATION.fullmatch(text)
    form = read(equation[2].strip() if equation else text)
    if form is None or (equation and equation[1] in form.letters()):
        return None
    return Answer("value", (form,), equation[1] if equation else "")


def _quantity(text: str) -> Fraction | None:
    """Return the number in a number with a unit, or in a price or a ratio."""
    value = number(text)
    if value is not None:
        return value
    if match := _MONEY.fullmatch(text):
        return number(match[1])
    if match := _RATIO.fullmatch(text):
        return Fraction(int(match[1]), int(match[2]))
    if match := _MEASURED.fullmatch(text):
        return None if match[2] and _NO_WORD.search(match[2]) else number(match[1])
    return None


def _list(text: str) -> Answer | None:
    plain = re.sub(r"\\left(?=[(\[]|\\\{)|\\right(?=[)\]]|\\\})", "", text)
    match = _LIST.fullmatch(plain)
    if match is None or _THOUSANDS.search(plain) or re.search(r"\} ?\d", plain):
        return None
    kind = match[1][-1:] + match[3][-1:]
    parts = _constants(match[2].split(","))
    if parts is None or kind not in ("", "{}", "()", "[]", "[)", "(]"):
        return None
    if kind in ("", "{}"):
        parts = tuple(sorted(parts, key=Form.value))
        return Answer("set", parts) if _increasing(parts) and _finite(parts) else None
    if kind != "()" and (len(parts) != 2 or not _increasing(parts)):
        return None
    return Answer(kind, parts) if len(parts) == 2 or _finite(parts) else None


def _matrix(text: str) -> Answer | None:
    match = _MATRIX.fullmatch(text)
    if match is None:
        return None
    rows = [row.split("&") for row in match[2].split("\\\\")]
    parts = _constants([cell for row in rows for cell in row])
    if parts is None or len({len(row) for row in rows}) > 1 or not _finite(parts):
        return None
    return Answer(f"matrix {len(rows)} {len(rows[0])}", parts)


def _constants(texts: list[str]) -> tuple[Form, ...] | None:
    parts = []
    for text in map(str.strip, texts):
        form = _INFINITY if text.lstrip("+-") == r"\infty" else read(text)
        if form is _INFINITY and text[0] == "-":
            form = Form({m: -c for m, c in form.top.items()})
        if form is None or form.letters():
            return None
        parts.append(form)
    return tuple(parts)


def _finite(parts: tuple[Form, ...]) -> bool:
    return all(abs(part.value()) < 1e15 for part in parts)


def _increasing(parts: tuple[Form, ...]) -> bool:
    pairs = pairwise(parts)
    return all(a.value() < b.value() and same(a, b) is False for a, b in pairs)


def _compare(answer: Answer, gold: Answer) -> bool | None:
    kinds = {answer.kind, gold.kind}
    if kinds == {"value"}:
        return _values(answer, gold)
    if kinds == {"word"}:
        return answer.name == gold.name
    if "percent" in kinds:
        return _percents(answer, gold)
    lists = [a for a in (answer, gold) if a.kind not in ("value", "word")]
    if len(lists) == 1:
        [other] = [a for a in (answer, gold) if a is not lists[0]]
        plain = other.kind == "word" or not (other.name or other.parts[0].letters())
        return False if plain and not lists[0].kind.startswith("matrix") else None
    if not lists:  # a word and a value
        value = answer if answer.kind == "value" else gold
        return False if not value.name and value.parts[0].rational() is not None else None
    return _lists(answer, gold)


def _values(answer: Answer, gold: Answer) -> bool | None:
    a = answer.parts[0]
    b = gold.parts[0]
    if answer.name and gold.name and answer.name != gold.name:
        return None if a.letters() or b.letters() else False
    return same(a, b)


def _percents(answer: Answer, gold: Answer) -> bool | None:
    if answer.kind == gold.kind:
        return answer.parts == gold.parts
    percent, other = (answer, gold) if answer.kind == "percent" else (gold, answer)
    value = other.parts[0].rational() if other.kind == "value" and not other.name else None
    per = percent.parts[0].rational()
    if value is None or per is None:
        return None
    whole = value.denominator == 1 and not other.parts[0].decimal
    if value == per / 100 or (value == per and whole):
        return True
    near = Fraction(1, 1000)
    return False if abs(value - per) > near and abs(value - per / 100) > near else None


def _lists(answer: Answer, gold: Answer) -> bool | None:
    if answer.kind != gold.kind:
        intervals = all(a.kind[0] in "([" and _increasing(a.parts) for a in (answer, gold))
        return False if intervals and len(answer.parts) == len(gold.parts) == 2 else None
    if len(answer.parts) != len(gold.parts):
        return False
    verdicts = [same(a, b) for a, b in zip(answer.parts, gold.parts, strict=True)]
    if False in verdicts:
        return False
    return None if None in verdicts else True
