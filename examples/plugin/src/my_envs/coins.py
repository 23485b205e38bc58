"""The coins."""

from __future__ import annotations

COINS = (1, 2, 5, 10, 20, 50)
TURNS = 6
"""Turns of an episode: six coins are enough for every amount below 100."""


def largest_coin(amount: int) -> int:
    """Return the largest coin that is not more than an amount of at least 1: 20 of 37."""
    return max(coin for coin in COINS if coin <= amount)
