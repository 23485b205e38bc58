r"""Where the answer is in the text of an agent: ``\boxed{7}``, ``<answer>7</answer>`` or plain.

Every parser takes any string, needs time linear in its length, and returns the answer with the
outer whitespace removed, or ``None`` if there is none. Where there are several, the last counts.
"""

from __future__ import annotations

import re

from gem_core.errors import unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Parser = Callable[[str], str | None]

_BOX = "\\boxed{"
_BRACES = re.compile(r"\\boxed\{|\\.|[{}]", re.DOTALL)


def boxed(text: str) -> str | None:
    r"""Return the content of the last complete ``\boxed{...}``; braces inside may nest.

    >>> boxed(r"first \boxed{1}, then \boxed{\frac{1}{2}} and \boxed{unfinished")
    '\\frac{1}{2}'
    """
    _, box, rest = text.rpartition(_BOX)
    if not box:
        return None
    content, brace, _ = rest.partition("}")
    if brace:
        if content.isalnum():
            return content
        if "{" not in content and "\\" not in content:
            return content.strip()
    return _boxed_scan(text)


def _boxed_scan(text: str) -> str | None:
    opened: list[int] = []  # where the content of each open box starts; -1 for a plain brace
    best = (-1, -1)
    for match in _BRACES.finditer(text):
        token = match[0]
        if token == "}":
            if opened:
                start = opened.pop()
                if start > best[0]:
                    best = (start, match.start())
        elif token == "{":
            opened.append(-1)
        elif token == _BOX:
            opened.append(match.end())
    return text[best[0] : best[1]].strip() if best[0] >= 0 else None


def tagged(text: str) -> str | None:
    """Return the content of the last complete ``<answer>...</answer>``.

    >>> tagged("<answer>1</answer> no, <answer> 2 </answer>")
    '2'
    """
    end = text.rfind("</answer>")
    if end < 0:
        return None
    start = text.rfind("<answer>", 0, end)
    return None if start < 0 else text[start + 8 : end].strip()


def plain(text: str) -> str | None:
    """Return the whole text without outer whitespace; ``None`` if nothing is left.

    >>> plain(" 7\\n")
    '7'
    """
    return text.strip() or None


#: Answer format -> (parser, text before the answer, text after it).
FORMATS: dict[str, tuple[Parser, str, str]] = {
    "boxed": (boxed, _BOX, "}"),
    "tag": (tagged, "<answer>", "</answer>"),
    "plain": (plain, "", ""),
}


def get_parser(answer_format: str) -> Parser:
    """Return the parser of an answer format.

    Raises:
        UnknownNameError: There is no such format.
    """
    return _format(answer_format)[0]


def render(answer: str, answer_format: str = "boxed") -> str:
    r"""Write an answer in an answer format.

    >>> render("7"), render("7", "tag"), render("7", "plain")
    ('\\boxed{7}', '<answer>7</answer>', '7')
    """
    _, before, after = _format(answer_format)
    return f"{before}{answer}{after}"


def _format(name: str) -> tuple[Parser, str, str]:
    try:
        return FORMATS[name]
    except KeyError:
        raise unknown(
            "answer format", name, FORMATS, f"There are {', '.join(map(repr, FORMATS))}."
        ) from None
