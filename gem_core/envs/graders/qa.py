"""Exact match and F1 of short answers, as in SQuAD (Rajpurkar et al. 2016, section 6.1)."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


def normalise_answer(text: str) -> str:
    """Return a text in lower case, without ASCII punctuation, articles and extra whitespace.

    >>> normalise_answer("The  Hague, (NL)")
    'hague nl'
    """
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, golds: Iterable[str]) -> bool:
    """Return whether an answer equals one of the right answers after normalisation.

    >>> exact_match("the Eiffel Tower.", ["Eiffel tower", "Tour Eiffel"])
    True
    """
    normal = normalise_answer(answer)
    return any(normal == normalise_answer(gold) for gold in golds)


def f1_score(answer: str, golds: Iterable[str]) -> float:
    """Return the best F1 of the answer's words with one of the right answers.

    An answer that is empty after normalisation only matches another empty one.

    >>> f1_score("blue cheese", ["cheese"])
    0.6666666666666666
    """
    words = normalise_answer(answer).split()
    return max((_f1(words, normalise_answer(gold).split()) for gold in golds), default=0.0)


def _f1(words: list[str], gold: list[str]) -> float:
    if not words or not gold:
        return float(words == gold)
    common = sum((Counter(words) & Counter(gold)).values())
    return 2 * common / (len(words) + len(gold))
