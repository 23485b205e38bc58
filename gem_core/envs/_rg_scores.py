"""Two scores of an answer to an item of reasoning-gym: the generator's own, and a strict one."""

from __future__ import annotations

import ast
import builtins
import math
import re
import sys
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

from gem_core.envs._rg_items import DATASETS, Item, generator, item
from gem_core.envs._rg_tables import EVALS_ANSWER, PARSES_ANSWER

_LONGEST = 2000
_UNREADABLE = ")"
"""A text that no parser reads: it replaces answers that must not be parsed, so that the scorer
gives them the score of any unreadable answer."""
_EXPRESSION = re.compile(r"[A-Za-z0-9_+\-*/^(). ,!%=<>&|~\s]*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_ATTRIBUTE = re.compile(r"\.\s*[A-Za-z_]")
_CONSTANT = re.compile(r"[A-Za-z]|[Cc]_?[0-9]+|const(ant)?")
_ARITHMETIC = re.compile(r"[0-9+\-*/() ]+")
_FUNCTIONS = frozenset(
    """
    pi exp log ln sqrt sin cos tan sec csc cot asin acos atan sinh cosh tanh asinh acosh
    atanh Abs erf erfi Ei li Si Ci fresnels fresnelc gamma uppergamma lowergamma Rational
    Integer
    """.split()  # noqa: SIM905
)
"""Names allowed in an expression that is a result."""
_OPERATIONS = frozenset(
    """
    None True False
    abs apart cancel cbrt diff divmod expand factor integrate max min pow real_root root
    round simplify sqrt sum together
    """.split()  # noqa: SIM905
)
"""Further names of Python and SymPy that are evaluated, as the generators' scorers do."""
_LITERALS = (
    ast.Expression,
    ast.Constant,
    ast.List,
    ast.Tuple,
    ast.Set,
    ast.Dict,
    ast.UnaryOp,
    ast.BinOp,
    ast.BoolOp,
    ast.Compare,
    ast.IfExp,
    ast.Subscript,
    ast.Slice,
    ast.Starred,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
    ast.expr_context,
)


def score(name: str, config: dict[str, Any], draw: int, answer: str) -> tuple[float, bool]:
    """Return the generator's own score of an answer, and whether the answer is right.

    An answer is right if the generator gives it the full score and no check of this module rejects
    it.

    Raises:
        Exception: whatever the scorer raises on an odd answer.
    """
    entry = item(name, config, draw)
    own = own_score(name, config, entry, answer)
    return own, own >= 1 and is_right(name, entry, answer)


def own_score(name: str, config: dict[str, Any], entry: Item, answer: str) -> float:
    """Return what the scorer of the generator returns, without running an answer as code."""
    if name in PARSES_ANSWER and not harmless(answer):
        answer = _UNREADABLE
    if name in EVALS_ANSWER:
        # The scorer looks `eval` up in its own module first.
        vars(sys.modules[DATASETS[name][0].__module__])["eval"] = evaluate
    own = float(generator(name, config).score_answer(answer, entry))
    if not math.isfinite(own):
        raise ValueError(f"the scorer of rg:{name} returned {own}")
    return own


def harmless(answer: str) -> bool:
    """Return whether a text is an expression of numbers, symbols and mathematical functions.

    >>> harmless("2*x**2 + sin(x) + C1"), harmless("open(x)"), harmless("x.y")
    (True, False, False)
    """
    if len(answer) > 1 and answer[0] == answer[-1] and answer[0] in "'\"":
        answer = answer[1:-1]  # a text, which SymPy parses too
    if len(answer) > _LONGEST or not _EXPRESSION.fullmatch(answer) or _ATTRIBUTE.search(answer):
        return False
    return all(_is_mathematical(name) for name in _NAME.findall(answer))


@cache
def _is_mathematical(name: str) -> bool:
    """Return whether SymPy reads a name as a symbol, a constant or a mathematical function."""
    import sympy
    from sympy.core.function import FunctionClass

    if len(name) == 1 or name in _FUNCTIONS or name in _OPERATIONS:
        return True
    if name.startswith("_") or hasattr(builtins, name):
        return False
    value = vars(sympy).get(name)
    if value is None or isinstance(value, FunctionClass | sympy.Basic):
        return True
    return isinstance(value, type) and issubclass(value, sympy.Expr)


def evaluate(text: str) -> Any:
    """Return the value of literals and the operators between them; a replacement for ``eval``.

    Raises:
        ValueError: the text has anything else, such as a name or a call.
    """
    tree = ast.parse(text.lstrip(" \t"), mode="eval")
    for node in ast.walk(tree):
        if not isinstance(node, _LITERALS):
            raise ValueError(f"{type(node).__name__} is not evaluated")
    return eval(compile(tree, "<answer>", "eval"), {"__builtins__": {}})


def is_right(name: str, entry: Item, answer: str) -> bool:
    """Return whether an answer to which the scorer gives the full score is right."""
    answer = answer.strip()
    check = _CHECKS.get(name)
    return check is None or answer == entry["answer"] or check(answer, entry)


def _same_text(answer: str, entry: Item) -> bool:
    return answer.lower().rstrip(".") == str(entry["answer"]).lower()


def _one_number(answer: str, entry: Item) -> bool:
    numbers = re.findall(r"-?\d+(?:\.\d+)?", answer)
    return len(numbers) == 1 and float(numbers[0]) == float(entry["answer"])


def _is_result(answer: str, entry: Item) -> bool:
    """Return whether an expression is a result, not the question in SymPy's notation."""
    return all(_CONSTANT.fullmatch(name) or name in _FUNCTIONS for name in _NAME.findall(answer))


def _makes_target(answer: str, entry: Item) -> bool:
    """Return whether an expression uses every number exactly once and equals the target."""
    answer = answer.rstrip(".")
    if not _ARITHMETIC.fullmatch(answer) or "**" in answer or "//" in answer:
        return False
    numbers = entry["metadata"]["numbers"]
    if sorted(map(int, re.findall(r"\d+", answer))) != sorted(numbers):
        return False
    try:
        value = _fraction(ast.parse(answer, mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return False
    return bool(value == entry["metadata"].get("target", 24))


def _fraction(node: ast.expr) -> Fraction:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return Fraction(node.value)
    if isinstance(node, ast.UnaryOp):
        inner = _fraction(node.operand)
        return -inner if isinstance(node.op, ast.USub) else inner
    if isinstance(node, ast.BinOp):
        left = _fraction(node.left)
        right = _fraction(node.right)
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        return left * right if isinstance(node.op, ast.Mult) else left / right
    raise ValueError(f"{type(node).__name__} is not arithmetic")


_CHECKS: dict[str, Callable[[str, Item], bool]] = {
    "countdown": _makes_target,
    "game_of_life_halting": _same_text,
    "gsm_symbolic": _one_number,
    "intermediate_integration": _is_result,
    "polynomial_multiplication": _is_result,
    "puzzle24": _makes_target,
    "simple_integration": _is_result,
    "spell_backward": _same_text,
}
"""Generators whose scorers give wrong answers the full score: any text for ``game_of_life_halting``
(it compares the truth values of strings), any four numbers that make 24, or 24.9, for ``puzzle24``,
a rounded result for ``countdown``, the first number without its sign for ``gsm_symbolic``, the
correct beginning for ``spell_backward``, and for integrals and products the task itself, such as
``integrate(...)``."""
CHECKED = frozenset(_CHECKS)
