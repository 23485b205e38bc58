"""Faults put into the adapter under test on purpose are found by a recorded run."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).resolve().parents[2] / "benchmarks" / "parity" / "faults.py"
SPEC = importlib.util.spec_from_file_location("parity_faults", FILE)
assert SPEC is not None and SPEC.loader is not None
faults = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = faults  # dataclasses look their module up
SPEC.loader.exec_module(faults)
ALWAYS = {
    "stop tokens not trained": "mask of token",
    "last reward dropped at a turn limit": "advantage of token",
    "old log-probs shifted by a token": "old log-probability of token",
    "gradient not clipped": "gradient norm (after clipping) of update",
    "warm-up a step too long": "learning rate of update",
}
"""Fault -> the first quantity that differs."""


def names(trainer):
    return [name for name, fault in faults.FAULTS.items() if trainer in fault.trainers]


@pytest.mark.parametrize("name", list(ALWAYS))
def test_it_is_found_and_the_first_quantity_is_named_with_both_values(
    trainer_name, model_dir, tmp_path, name
):
    found = faults.inject(name, trainer_name, model_dir, str(tmp_path))
    assert found and re.match(rf"step [12]: {re.escape(ALWAYS[name])}", found[0]), found
    assert "reference" in found[0]


def test_without_a_fault_it_is_green(trainer_name, model_dir, tmp_path):
    assert faults.inject("", trainer_name, model_dir, str(tmp_path)) == []


@pytest.mark.slow
def test_all_are_found(trainer_name, model_dir, tmp_path):
    green = []
    for number, name in enumerate(names(trainer_name)):
        folder = tmp_path / str(number)
        folder.mkdir()
        if not faults.inject(name, trainer_name, model_dir, str(folder)):
            green.append(name)
    assert green == []


def test_there_are_at_least_twenty():
    assert len(faults.FAULTS) >= 20
    assert {trainer for fault in faults.FAULTS.values() for trainer in fault.trainers} == set(
        faults.ALL
    )
