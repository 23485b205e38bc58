"""Facts, rules, and a statement that follows from them or not."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import Any

NAMES = ("Anne", "Bob", "Carla", "Dave", "Erin", "Finn")
TRAITS = ("kind", "quiet", "tall", "brave", "young", "smart", "calm", "happy", "strong", "gentle")


def statements(depth: int, seed: int, count: int) -> Iterator[dict[str, Any]]:
    """Yield theories with a statement that takes ``depth`` rules to decide; half are true."""
    r = Random(seed * 100 + depth)
    for number in range(count):
        name, other = r.sample(NAMES, 2)
        chain = r.sample(TRAITS, depth + 1)
        spare = [trait for trait in TRAITS if trait not in chain]
        facts = [f"{name} is {chain[0]}.", f"{other} is {r.choice(spare)}."]
        lines = [f"If someone is {a} then they are {b}." for a, b in pairwise(chain)]
        lines += [f"If someone is {spare[0]} then they are {spare[1]}."]
        r.shuffle(lines)
        true = number % 2 == 0
        # The traits of the chain can be derived for nobody else (closed world).
        who = name if true else other
        yield {
            "question": f"{' '.join(facts + lines)}\n\nWhat cannot be derived is false. Is this "
            f"statement True or False? {who} is {chain[-1]}.",
            "answer": str(true),
        }
