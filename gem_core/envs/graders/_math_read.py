r"""A parser of simple LaTeX: numbers, letters, the four operations, powers, roots, functions.

The grammar is small on purpose. What math-verify reads in an unusual way (``2 3`` is 5, ``3m`` is
3, ``f(x)`` is a function, ``^(`` ends at the first ``)``) is not part of it, and so left to
math-verify.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction

from gem_core.envs.graders import _math_forms as forms
from gem_core.envs.graders._math_forms import Atom, Form, Unread

_LETTERS = "xyznkabpqruvwtcgshijlmf"
_GREEK = (r"\alpha", r"\beta", r"\theta")
# Positive, so that it is a valid point whatever is assumed about the letters.
_ATOMS = {
    name: Atom(name, (17 + 6 * i) / (13 + 2 * i), name.strip("\\")[0])
    for i, name in enumerate((*_LETTERS, *_GREEK))
}
_ATOMS |= {r"\pi": Atom(r"\pi", math.pi), "e": Atom("e", math.e)}
_FUNCTIONS: dict[str, Callable[[float], float]] = {
    r"\sin": math.sin,
    r"\cos": math.cos,
    r"\tan": math.tan,
    r"\ln": math.log,
    r"\log": math.log10,
}
_TOKEN = re.compile(
    r" *(?:\\left(?=\()|\\right(?=\)))?"
    r"(\d{1,15}(?:\.\d{1,6})?(?![\d.])|[-+*/^(){}\[\]!]|[a-z](?![a-z]{3})"
    r"|\\(?:[dt]?frac|sqrt|cdot|times|pi|alpha|beta|theta|ln|log|sin|cos|tan)(?![a-zA-Z])) *",
    re.ASCII,
)
# math-verify reads digits after a brace as part of the fraction before it, an "i" by itself as the
# imaginary unit, and letters at the end as a unit.
_QUIRKS = re.compile(
    r"\} ?\d|\^ ?\(|\^ *[-+]|(?<![0-9a-z_])i(?![0-9a-z_])|(?<![a-z])or(?![a-z])|inf"
    r"|[\d}\s]\s*(?!(?:[abeijknpqruvwxyz]|[ijknpquvwxyz]{2})\s*$)[a-z]{1,3}\s*$",
    re.ASCII,
)


def read(text: str) -> Form | None:
    r"""Parse an expression; return ``None`` if it is not in the grammar.

    >>> read(r"\frac{x+1}{2}") == read("(1+x)/2"), read("f(x)")
    (True, None)
    """
    if len(text) > 100 or _QUIRKS.search(text):
        return None
    tokens = []
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            return None
        tokens.append(token[1])
        at = token.end()
    try:
        reader = _Reader(tokens)
        form = reader.sum()
        return form if reader.next == "" and forms.within_bounds(form) else None
    except (Unread, ArithmeticError, ValueError, RecursionError):
        return None


class _Reader:
    """A recursive-descent parser; ``next`` is the first token that is not read yet."""

    def __init__(self, tokens: list[str]) -> None:
        self._rest = ["", *reversed(tokens)]
        self.next = self._rest.pop()

    def take(self, expected: str = "") -> str:
        token = self.next
        if not token or (expected and token != expected):
            raise Unread
        self.next = self._rest.pop()
        return token

    def sum(self) -> Form:
        form = forms.number(0)
        sign = self.take() if self.next in ("+", "-") else "+"
        while True:
            form = forms.add(form, self.term(), 1 if sign == "+" else -1)
            if self.next not in ("+", "-"):
                return form
            sign = self.take()

    def term(self) -> Form:
        form = self.product()
        while self.next in ("*", "/", r"\cdot", r"\times"):
            if self.take() == "/":
                form = forms.divide(form, self.product())
            else:
                form = forms.multiply(form, self.product())
        return form

    def product(self) -> Form:
        """Read factors without an operator between them, which bind more tightly than a slash."""
        form = self.power()
        last = form
        while self._factor_ahead():
            factor = self.power()
            if last.rational() is not None and factor.rational() is not None:
                raise Unread  # a mixed number
            form = forms.multiply(form, factor)
            last = factor
        return form

    def _factor_ahead(self) -> bool:
        if self.next in (r"\cdot", r"\times"):
            return False
        return self.next[:1] in ("(", "{", "\\") or self.next.isalpha()  # no number: "e 7" fails

    def power(self) -> Form:
        name = self.next
        form = self.factor()
        exponent = self.exponent() if self.next == "^" else Fraction(1)
        if self.next in ("^", "!"):
            raise Unread
        if self.next == "(" and name in _ATOMS and (exponent < 0 or not self._sum_ahead()):
            raise Unread  # a function of that name
        return form if exponent == 1 else forms.power(form, exponent)

    def exponent(self) -> Fraction:
        self.take("^")
        if self.next.isdigit():
            return Fraction(self.take())
        value = self.braced().rational()
        if value is None:
            raise Unread
        return value

    def _sum_ahead(self) -> bool:
        depth = 0
        for token in reversed(self._rest):
            if depth == 0 and token in ("+", "-"):
                return True
            depth += (token in ("(", "{")) - (token in (")", "}"))
            if depth < 0:
                break
        return False

    def factor(self) -> Form:
        token = self.take()
        if token[0].isdigit():
            return self._number(token)
        if token in _ATOMS:
            return forms.single(_ATOMS[token])
        if token == "(":
            form = self.sum()
            self.take(")")
        elif token.endswith("frac"):
            form = forms.divide(self.braced(), self.braced())
        elif token == r"\sqrt":
            form = self._root()
        elif token in _FUNCTIONS:
            form = self._function(token)
        else:
            raise Unread
        if self.next == "!":
            raise Unread
        return form

    def braced(self) -> Form:
        self.take("{")
        form = self.sum()
        self.take("}")
        return form

    def _number(self, token: str) -> Form:
        if self.next == "!":
            self.take()
            if len(token) > 2 or int(token) > 17 or self.next in ("!", "^"):
                raise Unread
            return forms.number(math.factorial(int(token)))
        return forms.number(Fraction(token), 1) if "." in token else forms.number(int(token))

    def _root(self) -> Form:
        if self.next.isdigit():
            if len(self.next) > 1:
                raise Unread  # in LaTeX, the root covers only the first digit
            return forms.power(forms.number(int(self.take())), Fraction(1, 2))
        degree = 2
        if self.next == "[":
            self.take()
            degree = int(self.take())
            self.take("]")
        return forms.power(self.braced(), Fraction(1, degree))

    def _function(self, name: str) -> Form:
        times = self.exponent() if self.next == "^" else Fraction(1)
        if times not in (1, 2, 3, 4) or (times > 1 and name in (r"\ln", r"\log")):
            raise Unread
        bracket = self.next
        argument = self.braced() if bracket == "{" else self.factor()
        if self.next == "^" or (bracket != "(" and self.next not in ("", "+", "-", ")", "}")):
            raise Unread  # it is not clear where the argument ends
        if name in (r"\ln", r"\log"):
            base = forms.number(1) if name == r"\ln" else forms.logarithm(forms.number(10))
            return forms.divide(forms.logarithm(argument), base)
        return forms.power(forms.function(name[1:], _FUNCTIONS[name], argument), times)
