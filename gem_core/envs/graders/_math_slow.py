"""The verdict of math-verify. This module is imported only in worker processes.

* The timeouts of math-verify use signals, which work only in the main thread. They are off; the
  deadline of the pool replaces them.
* Its LaTeX parser tries ANTLR's fast prediction first. What that reads to the end, it reads as the
  full prediction does, which handles everything else.
* Numbers are made directly, where sympy would evaluate each of them as a line of Python.
* Before a difference is simplified to see whether it is zero, it is evaluated at one point.
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
except ImportError:  # other versions of math-verify parse in their own way, only slower
    _Latex2Sympy = None

# It warns at its first call that its timeouts are off.
logging.getLogger("math_verify").setLevel(logging.ERROR)


def run(job: list[str]) -> bool:
    """Grade ``[answer, gold]``."""
    answer, gold = job
    return bool(verify(list(_parse(gold)), list(_parse(answer)), timeout_seconds=None))


@lru_cache(maxsize=512)  # benchmarks/throughput/graders.py counts on no more
def _parse(text: str) -> tuple[Any, ...]:
    # A text with an unclosed box cannot be put into a box.
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
            return create(self, text).math()  # a new parser: the lexer of this one is used up

        parser.math = math
        return parser

    return create_parser


if _Latex2Sympy is not None:  # it affects nothing else: this is a worker process
    _Latex2Sympy.create_parser = _two_stages(_Latex2Sympy.create_parser)


_PLAIN = re.compile(r"(?:0|[1-9]\d*)(\.\d+)?", re.ASCII)


def _numbers_first(sympify: Any) -> Any:
    def sympified(text: Any, *args: Any, **options: Any) -> Any:
        plain = _PLAIN.fullmatch(text) if isinstance(text, str) and not (args or options) else None
        if plain is None:
            return sympify(text, *args, **options)
        return sympy.Float(text) if plain[1] else sympy.Integer(int(text))

    return sympified


if hasattr(sympy.core.numbers, "sympify"):  # what ``sympy.Number("12")`` calls
    sympy.core.numbers.sympify = _numbers_first(sympy.core.numbers.sympify)

_OPAQUE = (
    sympy.Integral,
    sympy.Derivative,
    sympy.Sum,
    sympy.Product,
    sympy.Limit,
    sympy.Piecewise,
    sympy.core.function.AppliedUndef,
    sympy.floor,
    sympy.ceiling,
    sympy.Mod,
    sympy.MatrixExpr,
)
"""A difference that has one of these is not evaluated: it may take long or have no value."""
_MOST_OPERATIONS = 60
_CLEARLY = 1e-3


def surely_differ(a: Any, b: Any) -> bool:
    """Return whether two expressions have clearly different values at one point.

    If they have, no simplification, which math-verify would try, can make them equal.
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
        # Positive, so that it is a valid point whatever is assumed about the symbols.
        point = {s: sympy.Rational(17 + 6 * i, 13 + 2 * i) for i, s in enumerate(symbols)}
        value = abs(complex(difference.evalf(20, subs=point)))
    except Exception:  # math-verify decides
        return False
    return math.isfinite(value) and value > _CLEARLY


def _cheap_first(symbolic: Any) -> Any:
    def equal(a: Any, b: Any) -> Any:
        return not surely_differ(a, b) and symbolic(a, b)

    return equal


if hasattr(grader, "sympy_symbolic_eq"):
    grader.sympy_symbolic_eq = _cheap_first(grader.sympy_symbolic_eq)
