"""A value without quotes, where both versions of YAML read it alike."""

from __future__ import annotations

import re

from gem_core.errors import RecipeError

_NULL = re.compile(r"~|null|Null|NULL|")
_BOOLEAN = re.compile(r"true|True|TRUE|false|False|FALSE")
_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_REAL = re.compile(
    r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+][0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
# What only one of the versions takes for something else than a text.
_SWITCH = re.compile(r"y|Y|n|N|(yes|no|on|off)", re.IGNORECASE)
_EXPONENT = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+")
_OCTAL = re.compile(r"[-+]?0(o[0-7]+|[0-9]+)")
_GROUPED = re.compile(
    r"[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*(\.[0-9_]*([eE][-+][0-9]+)?)?"
    r"|\.[0-9][0-9_]*([eE][-+]?[0-9]+)?)"
)
_SIXTIETHS = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt \t].*)?")
_SIGN = re.compile(r"<<|=")


def read_scalar(text: str) -> str | bool | int | float:
    """Return the value of a text without quotes.

    Raises:
        RecipeError: it is missing, or the versions of YAML read it differently; the message says
            what to write.

    >>> [read_scalar(text) for text in ("true", "12", "1.0e-3", "rebn", "game:Sudoku-v0-easy")]
    [True, 12, 0.001, 'rebn', 'game:Sudoku-v0-easy']
    """
    if _NULL.fullmatch(text):
        raise RecipeError("has no value: leave the key out, which gives its default")
    if _BOOLEAN.fullmatch(text):
        return text.lower() == "true"
    if _WHOLE.fullmatch(text):
        return _whole(text)
    if _HEXADECIMAL.fullmatch(text):
        return int(text, 16)
    if _REAL.fullmatch(text):
        return float(re.sub(r"\.(?=[a-zA-Z])", "", text))
    doubt = _doubt(text)
    if doubt:
        raise RecipeError(f"{text} is read differently by the versions of YAML: write {doubt}")
    return text


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:  # Python limits the digits of a number, as their time is quadratic
        raise RecipeError("has a number with too many digits: write a smaller one") from None


def _doubt(text: str) -> str:
    """Return what to write in the place of a text that has several meanings; "" if it has one."""
    quoted = f'"{text}" for the text'
    if _SWITCH.fullmatch(text):
        return f"true or false, or {quoted}"
    if _EXPONENT.fullmatch(text):
        return f"{_with_point(text)} for the number, or {quoted}"
    if _OCTAL.fullmatch(text):
        return f"the number in decimal digits without the leading 0, or {quoted}"
    if _SIXTIETHS.fullmatch(text):
        return f'"{text}", with quotes (or the number that is meant: a colon counts in sixtieths)'
    if _DATE.fullmatch(text) or _SIGN.fullmatch(text):
        return f'"{text}", with quotes'
    if _GROUPED.fullmatch(text):
        return f"the number in plain decimal digits, or {quoted}"
    return ""


def _with_point(text: str) -> str:
    """Return a number with a point and a sign in its exponent, as both versions read it.

    >>> _with_point("1e-3"), _with_point("2.5E6")
    ('1.0e-3', '2.5e+6')
    """
    digits, exponent = re.split("[eE]", text)
    digits = digits if "." in digits else f"{digits}.0"
    return f"{digits}e{exponent if exponent[0] in '+-' else '+' + exponent}"
