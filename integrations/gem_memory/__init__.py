"""Long tasks that need memory: what is told once is asked many turns later.

walk           the base class: a fixed number of stops, of which some tell and some ask
doors          numbers of doors, each told once
whereabouts    parcels that are moved from box to box
players        scripted players, which also sum up what they know

They are for histories that do not fit a context (``context.history``): a policy that sees only its
last turns cannot solve them, one that sums up can.
"""

from __future__ import annotations

from typing import Any

import gem_core
from gem_core.env.registration.parameters import (
    Choice,
    Declared,
    Flag,
    Maybe,
    Number,
    Rewards,
    Whole,
)

_WALK: Declared = {
    "max_turns": Whole(8, 200),
    "numbers": Whole(2, 99),
    "answer_format": Choice("boxed", "tag", "plain"),
    "rewards": Rewards(),
    "format_error_ends": Flag(),
    "part": Maybe(Choice("train", "eval", "all")),
    "held_out": Maybe(Number(0.001, 0.999)),
}
"""What clients of an environment server may set of both tasks."""


def register() -> None:
    """Register the environments. gem-core calls it, by the entry point of the distribution."""
    easy: dict[str, Any] = {"numbers": 5, "max_turns": 20}
    hard: dict[str, Any] = {"numbers": 99, "max_turns": 60}
    for name, entry_point, subjects in (
        ("Doors", "gem_memory.doors:Doors", "doors"),
        ("Whereabouts", "gem_memory.whereabouts:Whereabouts", "parcels"),
    ):
        of_clients = {**_WALK, subjects: Whole(1, 10)}
        for level, kwargs in (("easy", {subjects: 2, **easy}), ("hard", {subjects: 6, **hard})):
            gem_core.register(
                f"memory:{name}-v0-{level}", entry_point, client_parameters=of_clients, **kwargs
            )
