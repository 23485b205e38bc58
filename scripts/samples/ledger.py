"""The ledger of an invented harbour: questions that need two searches, one after the other.

An entry names the account that paid it, and the account's own paragraph has what it holds. Every
account pays one entry, so that no answer is seen with another question.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

_SEED = 23
_ENTRIES = 400
_GOODS = ("salt", "tar", "rope", "lamp oil", "sailcloth", "timber", "nails", "flour")


class Entry(NamedTuple):
    """An entry, the account that paid it, and what the account holds.

    Entries have numbers of four digits, accounts and amounts of three. No amount is the number of
    an account, so that a search for an account finds it.
    """

    number: int
    goods: str
    account: int
    holds: int


def entries() -> list[Entry]:
    """Return all entries, ordered by their numbers."""
    rng = Random(f"ledger {_SEED}")
    numbers = sorted(rng.sample(range(1000, 10_000), _ENTRIES))
    accounts = rng.sample(range(100, 1000), _ENTRIES)
    amounts = sorted(set(range(100, 1000)) - set(accounts))
    return [
        Entry(number, rng.choice(_GOODS), account, rng.choice(amounts))
        for number, account in zip(numbers, accounts, strict=True)
    ]


def documents() -> Iterator[dict[str, Any]]:
    """Yield the paragraphs of the corpus: ``title`` and ``text``."""
    for entry in entries():
        text = f"For {entry.goods}, paid by account {entry.account}."
        yield {"title": f"Entry {entry.number}", "text": text}
    for entry in sorted(entries(), key=lambda entry: entry.account):
        name = f"Account {entry.account}"
        yield {"title": name, "text": f"{name} holds {entry.holds} crowns."}


def questions() -> Iterator[dict[str, Any]]:
    """Yield a question about every entry."""
    for entry in entries():
        question = f"How many crowns are in the account that paid entry {entry.number}?"
        yield {"question": question, "answer": [str(entry.holds)]}
