r"""Extract the answer from an agent's text: ``\boxed{7}``, ``<answer>7</answer>`` or plain text.

Every parser takes any string, needs time linear in its length, and returns the answer without
surrounding whitespace, or ``None`` if there is none. If there are several answers, the last
complete one that is not empty counts; "written within ``\boxed{}``" does not change the answer.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from gem_core.errors import unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    Parser = Callable[[str], str | None]

_BOX = "\\boxed{"
_TAGS = re.compile("</?answer>")
_BRACES = re.compile(r"\\boxed\{|\\.|[{}]", re.DOTALL)


def boxed(text: str) -> str | None:
    r"""Return the content of the last complete, non-empty ``\boxed{...}``; braces may nest.

    >>> boxed(r"first \boxed{1}, then \boxed{\frac{1}{2}} and \boxed{unfinished")
    '\\frac{1}{2}'
    >>> boxed(r"\boxed{5}, written within \boxed{}")
    '5'
    """
    _, box, rest = text.rpartition(_BOX)
    if not box:
        return None
    content, brace, _ = rest.partition("}")
    if brace:
        if content.isalnum():
            return content
        simple = "{" not in content and "\\" not in content
        if simple and (stripped := content.strip()):
            return stripped
    return _boxed_scan(text)


def _boxed_scan(text: str) -> str | None:
    opened: list[int] = []  # start of the content of each open box; -1 for a plain brace
    complete: list[tuple[int, int]] = []
    for match in _BRACES.finditer(text):
        token = match[0]
        if token == "}":
            if opened:
                complete.append((opened.pop(), match.start()))
        elif token == "{":
            opened.append(-1)
        elif token == _BOX:
            opened.append(match.end())
    for start, end in sorted(complete, reverse=True):
        if start < 0:
            break
        if content := text[start:end].strip():
            return content
    return None


def tagged(text: str) -> str | None:
    """Return the content of the last complete, non-empty ``<answer>...</answer>``.

    >>> tagged("<answer>1</answer> no, <answer> 2 </answer>")
    '2'
    """
    start = -1  # start of the content of the open tag
    answer = None
    for match in _TAGS.finditer(text):
        if match[0] == "<answer>":
            start = match.end()
        elif start >= 0:
            answer = text[start : match.start()].strip() or answer
            start = -1
    return answer


def plain(text: str) -> str | None:
    """Return the whole text without surrounding whitespace; ``None`` if nothing is left.

    >>> plain(" 7\\n")
    '7'
    """
    return text.strip() or None


FORMATS: dict[str, tuple[Parser, str, str]] = {
    "boxed": (boxed, _BOX, "}"),
    "tag": (tagged, "<answer>", "</answer>"),
    "plain": (plain, "", ""),
}
"""Answer format -> (parser, text before the answer, text after it)."""
_SIMPLE = {
    "boxed": re.compile(r"\\boxed\{([^{}\\]*)\}"),
    "tag": re.compile("<answer>([^<]*)</answer>"),
}


def get_parser(answer_format: str) -> Parser:
    """Return the parser of an answer format.

    Raises:
        UnknownNameError: there is no such format.
    """
    return _format(answer_format)[0]


def simple_answers(text: str, answer_format: str = "boxed") -> list[str]:
    r"""Return all non-empty answers without further markup, the last one first.

    There are none in the format ``"plain"``, in which the whole text is the answer.

    >>> simple_answers(r"\boxed{left} or \boxed{ up }, as \boxed{}, not \boxed{x_{1}}")
    ['up', 'left']
    """
    if _format(answer_format)[0] is plain:
        return []
    answers = [answer.strip() for answer in _SIMPLE[answer_format].findall(text)]
    return [answer for answer in reversed(answers) if answer]


def form_parser(form: str, answer_format: str = "boxed", ignore_case: bool = False) -> Parser:
    r"""Return a parser that finds the last answer of one form and ignores all other answers.

    Args:
        form: regular expression of the content, with groups. The answer is the groups that
            matched, joined by single spaces.
        answer_format: the markup around the content.
        ignore_case: match the form and the markup in upper and lower case.

    >>> form_parser(r"(\d+)\s(\d+)")(r"\boxed{1 2} or \boxed{3, 4}?")
    '1 2'
    """
    parser, before, after = _format(answer_format)
    if parser is plain:
        before = r"\A\s*"
        after = r"\s*\Z"
    else:
        before = re.escape(before)
        after = re.escape(after)
    pattern = re.compile(f"{before}(?:{form}){after}", re.IGNORECASE if ignore_case else 0)
    return partial(_last_match, pattern)


def _last_match(pattern: re.Pattern[str], text: str) -> str | None:
    last = None
    for last in pattern.finditer(text):  # noqa: B007  only the last one is used
        pass
    return None if last is None else " ".join(filter(None, last.groups()))


def render(answer: str, answer_format: str = "boxed") -> str:
    r"""Return an answer written in an answer format.

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
