"""Actions of all kinds: right, wrong, repeated, malformed, several, nested, in odd characters."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

_DIGITS = "".join(map(str, range(10)))
_ARABIC = {ord(digit): 0x660 + int(digit) for digit in _DIGITS}
_WIDE = {ord(x): 0xFEE0 + ord(x) for x in _DIGITS + "abcdefgABCDEFG"}
# Characters that `re.IGNORECASE` matches with i, s, k and I.
_LOOKALIKE = str.maketrans("isSkKI", "\u0131\u017f\u017f\u212a\u212a\u0130")

CONTENTS: dict[str, Callable[[str, Random], str]] = {
    "upper case": lambda c, _: c.upper(),
    "lower case": lambda c, _: c.lower(),
    "mixed case": lambda c, r: "".join(r.choice((x.upper(), x.lower())) for x in c),
    "spaces around": lambda c, r: f"{r.choice(('', ' '))}{c}{r.choice((' ', '  ', chr(9)))}",
    "two spaces": lambda c, _: c.replace(" ", "  "),
    "tabs": lambda c, _: c.replace(" ", "\t"),
    "line breaks": lambda c, r: c.replace(" ", r.choice(("\n", "\r\n", "\v", "\u2028"))),
    "no-break spaces": lambda c, _: c.replace(" ", "\u00a0"),
    "commas": lambda c, r: c.replace(" ", r.choice((",", ", ", " ,", " , "))),
    "nothing between": lambda c, _: c.replace(" ", ""),
    "space inside": lambda c, r: _insert(c, r, r.choice((" ", "\t"))),
    "leading zeros": lambda c, r: re.sub(r"\d+", "0" * r.choice((1, 2, 15)) + r"\g<0>", c),
    "sign": lambda c, r: re.sub(r"\d+", r.choice("+-") + r"\g<0>", c, count=1),
    "decimal": lambda c, _: re.sub(r"\d+", r"\g<0>.0", c, count=1),
    "underscore": lambda c, _: re.sub(r"\d+", r"0_\g<0>", c, count=1),
    "other digits": lambda c, _: c.translate(_ARABIC),
    "wide characters": lambda c, _: c.translate(_WIDE),
    "look-alikes": lambda c, _: c.translate(_LOOKALIKE),
    "zero": lambda c, _: re.sub(r"\d+", "0", c, count=1),
    "large number": lambda c, r: re.sub(r"\d+", "9" * r.choice((2, 3, 13, 400)), c, count=1),
    "number too long": lambda c, _: re.sub(r"\d+", "7" * 4301, c, count=1),
    "token more": lambda c, r: f"{c} {r.choice(('1', 'x', c))}",
    "token less": lambda c, _: c.rpartition(" ")[0] or c[:-1],
    "other word": lambda c, r: re.sub("[A-Za-z]+", r.choice(("dig", "zz", "Q", "é")), c, count=1),
    "brackets": lambda c, r: r.choice(("[{}]", "({})", "'{}'", "${}$", "\\text{{{}}}")).format(c),
    "emoji": lambda c, r: c + r.choice(("🙂", "\u200b", "\x00", "\ud800")),
}
"""Kind -> change of the content of a box."""

TEXTS: dict[str, Callable[[str, str, Random], str]] = {
    "thoughts": lambda c, d, _: f"Let me think. {d}? No.\n\nI choose \\boxed{{{c}}}. Done.",
    "two boxes": lambda c, d, _: f"\\boxed{{{d}}} or rather \\boxed{{{c}}}",
    "box about the box": lambda c, d, _: f"\\boxed{{{c}}}, which I write within \\boxed{{}}.",
    "placeholder": lambda c, d, r: (
        f"\\boxed{{{c}}} in \\boxed{{{r.choice(('...', 'answer', '…', ' ', '-'))}}}"
    ),
    "box with text": lambda c, d, _: f"\\boxed{{{c}}} \\boxed{{the answer is {c}}}",
    "nested": lambda c, d, _: f"\\boxed{{\\boxed{{{c}}}}}",
    "nested text": lambda c, d, _: f"\\boxed{{\\text{{{c}}}}}",
    "double braces": lambda c, d, _: f"\\boxed{{{{{c}}}}}",
    "not closed": lambda c, d, _: f"\\boxed{{{c}",
    "closed, then open": lambda c, d, _: f"\\boxed{{{c}}} \\boxed{{{d}",
    "open, then closed": lambda c, d, _: f"\\boxed{{{d} \\boxed{{{c}}}",
    "closed twice": lambda c, d, _: f"\\boxed{{{c}}}}}",
    "stray braces": lambda c, d, _: f"}} {{ \\boxed{{{c}}} {{",
    "dollars": lambda c, d, _: f"$$\\boxed{{{c}}}$$",
    "fbox": lambda c, d, _: f"\\fbox{{{c}}}",
    "no braces": lambda c, d, _: f"\\boxed {c}",
    "space before brace": lambda c, d, _: f"\\boxed {{{c}}}",
    "two backslashes": lambda c, d, _: f"\\\\boxed{{{c}}}",
    "no backslash": lambda c, d, _: f"boxed{{{c}}}",
    "BOXED": lambda c, d, r: f"\\{r.choice(('BOXED', 'Boxed', 'bOxEd'))}{{{c}}}",
    "tag": lambda c, d, _: f"<answer>{c}</answer>",
    "plain": lambda c, d, _: c,
    "many boxes": lambda c, d, r: " ".join(f"\\boxed{{{x}}}" for x in r.choices((c, d, ""), k=9)),
    "nothing": lambda c, d, r: r.choice(("", " ", "\\boxed{}", "I do not know.", "\x00", "é")),
}
"""Kind -> text around the content ``c``; ``d`` is another content."""


def _insert(content: str, rng: Random, text: str) -> str:
    at = rng.randrange(len(content) + 1)
    return content[:at] + text + content[at:]


def odd_action(content: str, other: str, rng: Random) -> tuple[str, str]:
    """Return an action made from two well-formed contents, and the name of its kind."""
    which = rng.random()
    if which < 0.45:
        kind = rng.choice(list(CONTENTS))
        return f"\\boxed{{{CONTENTS[kind](content, rng)}}}", kind
    if which < 0.8:
        kind = rng.choice(list(TEXTS))
        return TEXTS[kind](content, other, rng), kind
    inside = rng.choice(list(CONTENTS))
    around = rng.choice(list(TEXTS))
    return TEXTS[around](CONTENTS[inside](content, rng), other, rng), f"{inside}, {around}"
