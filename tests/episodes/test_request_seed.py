"""The seed of a request: every part of the key counts, and it fits the engines' fields."""

from __future__ import annotations

from gem_core.episodes.request_seed import request_seed

KEY = {"run_seed": 1, "split": "train", "task_seed": 2, "task_index": 3, "turn": 4}


def test_every_part_of_the_key_counts():
    changes = [
        {},
        {"run_seed": 2},
        {"split": "eval"},
        {"task_seed": 1},
        {"task_seed": None},
        {"task_index": 4},
        {"turn": 5},
        {"task_index": 34, "turn": 0},
    ]
    assert len({request_seed(**(KEY | change)) for change in changes}) == len(changes)


def test_it_never_changes():
    """Lockstep runs of different versions are compared: the numbers are part of the contract."""
    assert request_seed(**KEY) == 4665628419700424369


def test_it_fits_into_a_signed_integer_of_64_bits():
    seeds = [request_seed(0, "train", 7, 7, turn) for turn in range(10_000)]
    assert min(seeds) >= 0 and 2**62 < max(seeds) < 2**63
    assert len(set(seeds)) == len(seeds)
