"""Word problems and exercises with random numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from random import Random
from typing import Any


def latex(value: Fraction) -> str:
    """Return a number in LaTeX."""
    if value.denominator == 1:
        return str(value.numerator)
    sign = "-" if value < 0 else ""
    return f"{sign}\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def apples(r: Random) -> tuple[str, str]:
    """Return a problem about crates of apples."""
    crates = r.randint(3, 9)
    each = r.randint(6, 15)
    sold = r.randint(5, 17)
    return (
        f"A market stall has {crates} crates with {each} apples in each. It sells {sold} apples. "
        "How many apples are left?",
        str(crates * each - sold),
    )


def train(r: Random) -> tuple[str, str]:
    """Return a problem about a train."""
    speed = r.choice((40, 60, 80, 90, 120))
    minutes = r.choice((15, 30, 45, 20))
    return (
        f"A train runs at a constant {speed} kilometres per hour. How many kilometres does it "
        f"cover in {minutes} minutes?",
        latex(Fraction(speed * minutes, 60)),
    )


def change(r: Random) -> tuple[str, str]:
    """Return a problem about change."""
    price = r.randint(110, 390)
    count = r.randint(2, 5)
    paid = (price * count // 500 + 1) * 500
    return (
        f"One notebook costs ${price / 100:.2f}. Mira buys {count} of them and pays with "
        f"${paid // 100}. How many dollars of change does she get?",
        f"{(paid - price * count) / 100:.2f}",
    )


def linear(r: Random) -> tuple[str, str]:
    """Return a linear equation."""
    a = r.randint(2, 12)
    solution = Fraction(r.randint(-20, 20), r.choice((1, 1, 2, 3)))
    b = r.randint(1, 30)
    c = a * solution + b
    return f"Solve for $x$: ${a}x + {b} = {latex(c)}$.", latex(solution)


def remainder(r: Random) -> tuple[str, str]:
    """Return a question about the remainder of a power."""
    base = r.randint(2, 9)
    power = r.randint(10, 40)
    modulus = r.choice((7, 11, 13, 17))
    return (
        f"What is the remainder when ${base}^{{{power}}}$ is divided by ${modulus}$?",
        str(pow(base, power, modulus)),
    )


def vieta(r: Random) -> tuple[str, str]:
    """Return a question about the roots of a quadratic equation."""
    p = r.randint(-9, 9)
    q = r.randint(1, 9)
    return (
        f"The roots of $x^2 - ({p + q})x + ({p * q}) = 0$ are $r$ and $s$. Find $r^2 + s^2$.",
        str(p * p + q * q),
    )


def dice(r: Random) -> tuple[str, str]:
    """Return a question about the sum of two dice."""
    total = r.randint(3, 11)
    ways = sum(a + b == total for a in range(1, 7) for b in range(1, 7))
    return (
        f"Two fair six-sided dice are rolled. What is the probability that their sum is {total}? "
        "Write it as a common fraction.",
        latex(Fraction(ways, 36)),
    )


def derivative(r: Random) -> tuple[str, str]:
    """Return a function to differentiate."""
    a = r.randint(2, 7)
    b = r.randint(2, 9)
    n = r.randint(2, 5)
    inner = f"{a * n}x^{{{n - 1}}}" if n > 2 else f"{a * n}x"
    return f"Differentiate ${a}x^{n} + {b}x$ with respect to $x$.", f"{inner} + {b}"


def surd(r: Random) -> tuple[str, str]:
    """Return a root to simplify."""
    outside = r.randint(2, 7)
    inside = r.choice((2, 3, 5, 6, 7))
    return (
        f"Simplify $\\sqrt{{{outside * outside * inside}}}$.",
        f"{outside}\\sqrt{{{inside}}}",
    )


def interval(r: Random) -> tuple[str, str]:
    """Return an inequality whose solution is an interval."""
    low = r.randint(-6, 4)
    width = r.randint(2, 9)
    middle = Fraction(2 * low + width, 2)
    half = Fraction(width, 2)
    return (
        f"Solve $\\left|x - ({latex(middle)})\\right| < {latex(half)}$. Give the interval.",
        f"({low},{low + width})",
    )


EASY: tuple[Callable[[Random], tuple[str, str]], ...] = (apples, train, change, linear)
HARD = (remainder, vieta, dice, derivative, surd, interval)


def problems(seed: int) -> Iterator[dict[str, Any]]:
    """Yield problems without repetition."""
    r = Random(seed)
    asked = set()
    while True:
        question, answer = r.choice(EASY + HARD)(r)
        if question not in asked:
            asked.add(question)
            yield {"question": question, "answer": answer}
