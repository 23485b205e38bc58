"""math-verify's verdict; imported in worker processes only.

Its own timeouts raise signals, which works in the main thread alone, so they are off and the
pool's deadline takes their place. Its LaTeX parser is made to try ANTLR's fast prediction first:
what that reads to the end it reads as the full prediction does, which decides on all the rest. The
numbers in it are made as such, where sympy would run each as a line of Python. And before a
difference is simplified, to see whether it is zero, its value at one point is looked at.
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
from functools import lru_cache
from typing import Any

import sympy
import sympy.core.numbers
from math_verify import grader, parse, verify

try:
    from antlr4 import Token
    from antlr4.atn.PredictionMode import PredictionMode
    from latex2sympy2_extended.latex2sympy2 import _Latex2Sympy
except ImportError:  # other versions of math-verify parse as they do, only slower
    _Latex2Sympy = None

# It warns at each first call that its timeouts are off.
logging.getLogger("math_verify").setLevel(logging.ERROR)


def run(job: list[str]) -> bool:
    """Judge ``[answer, gold]``."""
    answer, gold = job
    return bool(verify(list(_parse(gold)), list(_parse(answer)), timeout_seconds=None))


@lru_cache(maxsize=512)  # benchmarks/throughput/graders.py counts on no more
def _parse(text: str) -> tuple[Any, ...]:
    # A text in which a box is left open cannot be put into one.
    return tuple(parse(f"\\boxed{{{text}}}", parsing_timeout=None))


def _two_stages(create: Any) -> Any:
    """Wrap the method that makes a parser, so that it parses in two stages."""

    def create_parser(self: Any, text: str) -> Any:
        parser = create(self, text)
        full = parser.math

        def math() -> Any:
            parser._interp.predictionMode = PredictionMode.SLL
            with contextlib.suppress(Exception):  # the full prediction will raise it again
                tree = full()
                if parser.getTokenStream().LA(1) == Token.EOF:
                    return tree
            return create(self, text).math()  # a new one: the lexer of this one is half through

        parser.math = math
        return parser

    return create_parser


if _Latex2Sympy is not None:  # seen by nobody else: this module lives in the grader's workers
    _Latex2Sympy.create_parser = _two_stages(_Latex2Sympy.create_parser)


_PLAIN = re.compile(r"(?:0|[1-9]\d*)(\.\d+)?", re.ASCII)


def _numbers_first(sympify: Any) -> Any:
    def sympified(text: Any, *args: Any, **options: Any) -> Any:
        found = _PLAIN.fullmatch(text) if isinstance(text, str) and not (args or options) else None
        if found is None:
            return sympify(text, *args, **options)
        return sympy.Float(text) if found[1] else sympy.Integer(int(text))

    return sympified


if hasattr(sympy.core.numbers, "sympify"):  # what ``sympy.Number("12")`` calls
    sympy.core.numbers.sympify = _numbers_first(sympy.core.numbers.sympify)

#: A difference with one of these is not evaluated: that may take long, or mean nothing.
_OPAQUE = (
    *(sympy.Integral, sympy.Derivative, sympy.Sum, sympy.Product, sympy.Limit, sympy.Piecewise),
    *(sympy.core.function.AppliedUndef, sympy.floor, sympy.ceiling, sympy.Mod, sympy.MatrixExpr),
)
_MOST_OPERATIONS = 60
_CLEARLY = 1e-3


def surely_differ(a: Any, b: Any) -> bool:
    """Return whether two expressions have clearly different values at one point.

    What differs at a point cannot be simplified to the same, which is what math-verify would try.
    """
    try:
        difference = a - b
        symbols = sorted(difference.free_symbols, key=str)
        if (
            not isinstance(difference, sympy.Expr)
            or difference.has(*_OPAQUE)
            or difference.count_ops() > _MOST_OPERATIONS
            or any(s.is_integer or not s.is_commutative for s in symbols)
            or any(abs(n) > 1000 for n in difference.atoms(sympy.Number))
        ):
            return False
        # Positive, so that it is a point whatever is assumed of the symbols.
        point = {s: sympy.Rational(17 + 6 * i, 13 + 2 * i) for i, s in enumerate(symbols)}
        value = abs(complex(difference.evalf(20, subs=point)))
    except Exception:  # then it is for math-verify
        return False
    return math.isfinite(value) and value > _CLEARLY


def _cheap_first(symbolic: Any) -> Any:
    def equal(a: Any, b: Any) -> Any:
        return not surely_differ(a, b) and symbolic(a, b)

    return equal


if hasattr(grader, "sympy_symbolic_eq"):
    grader.sympy_symbolic_eq = _cheap_first(grader.sympy_symbolic_eq)
