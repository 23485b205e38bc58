"""Quotients of polynomials, compared at one point and, where that is easy, exactly.

Forms that differ at a point are different. Forms that are the same after expanding both are equal,
also for math-verify, which would expand them too. All others need algebra.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from operator import itemgetter
from typing import NamedTuple

from gem_core.envs.graders._math_numbers import CLEARLY


class Unread(Exception):
    """The text is not in the grammar, or too large for this module."""


class Atom(str):
    """A factor of a monomial: a letter, a constant, a root of a prime, or a function.

    Attributes:
        value: its value at the point.
        letters: the letters that it depends on.
        is_letter: whether it is a letter itself.
    """

    value: float
    letters: str
    is_letter: bool

    def __new__(cls, name: str, value: float, letters: str = "") -> Atom:
        atom = super().__new__(cls, name)
        atom.value = value
        atom.letters = letters
        atom.is_letter = "[" not in name and letters != ""
        return atom


Number = Fraction | int
Monomial = tuple[tuple[Atom, Number], ...]
Polynomial = dict[Monomial, Number]

ONE: Polynomial = {(): 1}
_MOST_TERMS = 40
_HIGHEST_POWER = 8
_LARGEST = 10**15
_CLEARLY = float(CLEARLY)


class Form(NamedTuple):
    """A quotient of two polynomials.

    Attributes:
        top: the numerator.
        bottom: the denominator.
        decimal: 1 if it was made from a decimal, 2 if that had to be rounded or a root was taken.
    """

    top: Polynomial
    bottom: Polynomial = ONE
    decimal: int = 0

    def value(self) -> float:
        """Return the value at the point."""
        return _value(self.top) / _value(self.bottom)

    def rational(self) -> Fraction | None:
        """Return the rational number that the form is, or ``None`` if it is not a number."""
        if self.top.keys() <= ONE.keys() and self.bottom.keys() == ONE.keys():
            return Fraction(self.top.get((), 0)) / self.bottom[()]
        return None

    def letters(self) -> set[str]:
        """Return the letters of the form."""
        atoms = {a for p in (self.top, self.bottom) for m in p for a, _ in m}
        return {letter for atom in atoms for letter in atom.letters}

    def is_letter(self) -> bool:
        """Return whether the form is a single letter."""
        if self.bottom != ONE or len(self.top) != 1:
            return False
        [(monomial, c)] = self.top.items()
        return c == 1 and len(monomial) == 1 and monomial[0][1] == 1 and monomial[0][0].is_letter


def number(value: Number, decimal: int = 0) -> Form:
    """Return the form of a rational number."""
    if decimal and not _binary(value):
        decimal = 2
    return Form({(): value} if value else {}, ONE, decimal)


def single(atom: Atom) -> Form:
    """Return the form of an atom."""
    return Form({((atom, 1),): 1})


def same(a: Form, b: Form) -> bool | None:
    """Return whether two forms are equal, or ``None`` if that is not clear without algebra."""
    value_a = a.value()
    value_b = b.value()
    if abs(value_a - value_b) > _CLEARLY + 1e-10 * (abs(value_a) + abs(value_b)):
        return False
    if a.is_letter() or b.is_letter():
        return None  # math-verify compares a letter by its name alone
    if a != b and not (_free_of_rounding(a) and _free_of_rounding(b)):
        return None
    try:
        difference = _sum(_product(a.top, b.bottom), _product(b.top, a.bottom), -1)
        return None if _without_squared_sines(difference) else True
    except Unread:
        return None


def within_bounds(form: Form) -> bool:
    """Return whether the value of a form is accurate to a few digits."""
    for p in (form.top, form.bottom):
        terms = [abs(_value({monomial: c})) for monomial, c in p.items()]
        if terms and abs(_value(p)) < 1e-4 * max(terms):
            return False  # cancellation makes the value inaccurate
    return abs(form.value()) < _LARGEST


def _free_of_rounding(form: Form) -> bool:
    """Return whether floating-point numbers represent the form exactly."""
    coefficients = (*form.top.values(), *form.bottom.values())
    return not form.decimal or (form.decimal == 1 and all(map(_binary, coefficients)))


def _binary(value: Number) -> bool:
    return value.denominator & (value.denominator - 1) == 0


def add(a: Form, b: Form, factor: int = 1) -> Form:
    """Return ``a + factor * b``."""
    decimal = max(a.decimal, b.decimal)
    if a.bottom == b.bottom:
        return Form(_sum(a.top, b.top, factor), a.bottom, decimal)
    top = _sum(_product(a.top, b.bottom), _product(b.top, a.bottom), factor)
    return Form(top, _product(a.bottom, b.bottom), decimal)


def multiply(a: Form, b: Form) -> Form:
    """Return the product."""
    return Form(_product(a.top, b.top), _product(a.bottom, b.bottom), max(a.decimal, b.decimal))


def divide(a: Form, b: Form) -> Form:
    """Return the quotient."""
    return multiply(a, inverse(b))


def inverse(form: Form) -> Form:
    """Return one divided by a form."""
    if not form.top:
        raise Unread
    value = form.rational()
    if value is not None:
        return number(1 / value, form.decimal)
    return Form(form.bottom, form.top, form.decimal)


def power(base: Form, exponent: Fraction) -> Form:
    """Return an integer power of any form, or a root of a positive rational number."""
    value = base.rational()
    if value is not None and exponent.denominator > 1:
        return _root(value, exponent, base.decimal)
    highest = _HIGHEST_POWER if value is None else 40
    if exponent.denominator > 1 or abs(exponent) > highest or (not base.top and exponent <= 0):
        raise Unread
    if value is not None:
        if abs(exponent) * math.log10(max(abs(value.numerator), value.denominator)) > 15:
            raise Unread
        return number(value ** int(exponent), base.decimal)
    form = number(1, base.decimal)
    for _ in range(abs(int(exponent))):
        form = multiply(form, base)
    return inverse(form) if exponent < 0 else form


def logarithm(argument: Form) -> Form:
    """Return the natural logarithm; that of a number is a sum over its prime factors."""
    value = argument.rational()
    if value is None:
        return function("ln", math.log, argument)
    if argument.decimal or value <= 0:
        raise Unread
    top: Polynomial = {}
    for prime, times in _factors(value).items():
        top = _sum(top, {((Atom(f"ln{prime}", math.log(prime)), 1),): times}, 1)
    return Form(top)


def function(name: str, of: Callable[[float], float], argument: Form) -> Form:
    """Return a function of a form, as an atom of its own."""
    if argument.bottom != ONE:
        raise Unread
    terms = ("*".join([str(c), *(f"{a}^{e}" for a, e in m)]) for m, c in argument.top.items())
    key = "+".join(sorted(terms))
    at = argument.value()
    value = of(at)
    if max(abs(at), abs(value)) > 1000 or not within_bounds(argument):
        raise Unread
    atom = Atom(f"{name}[{key}]", value, "".join(sorted(argument.letters())))
    return Form({((atom, 1),): 1}, ONE, 2 if argument.decimal else 0)


def _value(p: Polynomial) -> float:
    total = 0.0
    for monomial, c in p.items():
        term = float(c)
        for atom, e in monomial:
            term *= math.pow(atom.value, e)
        total += term
    return total


def _sum(a: Polynomial, b: Polynomial, factor: int) -> Polynomial:
    result = dict(a)
    for monomial, c in b.items():
        total = result.get(monomial, 0) + factor * c
        if total:
            result[monomial] = total
        else:
            result.pop(monomial, None)
    return result


def _product(a: Polynomial, b: Polynomial) -> Polynomial:
    if b == ONE:
        return a
    result: Polynomial = {}
    for m, c in a.items():
        for n, d in b.items():
            monomial, coefficient = _times(m, n)
            result[monomial] = result.get(monomial, 0) + c * d * coefficient
    result = {m: c for m, c in result.items() if c}
    if len(result) > _MOST_TERMS or not all(-_LARGEST < c < _LARGEST for c in result.values()):
        raise Unread
    return result


def _times(m: Monomial, n: Monomial) -> tuple[Monomial, int]:
    if not m or not n:
        return m or n, 1
    powers = dict(m)
    coefficient = 1
    for atom, e in n:
        total = powers.get(atom, 0) + e
        if atom[0] == "#" and total >= 1:  # a root of a prime
            total -= 1
            coefficient *= int(atom[1:])
        powers[atom] = total
    return tuple(sorted([p for p in powers.items() if p[1]], key=itemgetter(0))), coefficient


def _root(value: Fraction, exponent: Fraction, decimal: int) -> Form:
    if value <= 0 or abs(exponent) > 4 or exponent.denominator > 6:
        raise Unread
    form = number(1, 2 if decimal else 0)
    for prime, times in _factors(value).items():
        whole, part = divmod(times * exponent, 1)
        root: Polynomial = {((Atom(f"#{prime}", float(prime)), part),): 1} if part else ONE
        form = multiply(form, multiply(Form(root), number(Fraction(prime) ** int(whole))))
    return form


def _factors(value: Fraction) -> dict[int, int]:
    if max(value.numerator, value.denominator) > 10**6:
        raise Unread
    factors: dict[int, int] = {}
    for part, sign in ((value.numerator, 1), (value.denominator, -1)):
        prime = 2
        while part > 1:
            if prime * prime > part:
                prime = part
            while part % prime == 0:
                part //= prime
                factors[prime] = factors.get(prime, 0) + sign
            prime += 1
    return factors


def _without_squared_sines(p: Polynomial) -> Polynomial:
    """Replace squared sines by cosines."""
    while True:
        for monomial, c in p.items():
            for atom, e in monomial:
                if atom.startswith("sin") and e >= 2:
                    rest = {_times(monomial, ((atom, -2),))[0]: c}
                    cosine = Atom("cos" + atom[3:], 0.0, atom.letters)
                    break
            else:
                continue
            break
        else:
            return p
        without = _sum(p, {monomial: c}, -1)
        p = _sum(without, _product(rest, {(): 1, ((cosine, 2),): -1}), 1)
