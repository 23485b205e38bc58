"""Training while the engine samples: old log-probabilities are the trained model's, not the
engine's; a trainer whose adapter has no such mode refuses the keys that would start one."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

import pytest

from gem_core.errors import GemError
from gem_parity.cases import RUNS
from gem_parity.replays import load_replay
from gem_parity.teacher_forced import teacher_forced

STEPS = 3
REFUSED = {
    "oat": ("trainer.oat.asynchronous=true",),
    "verl": ("trainer.verl.trainer.v1.trainer_mode=separate_async",),
    "rl2": ("trainer.rl2.trainer.async=true",),
    "trl": ("trainer.trl.steps_per_generation=8", "trainer.trl.num_iterations=2"),
}
"""Trainer -> native keys by which it would train on episodes of older weights."""


def test_the_old_policy_is_the_trained_one(package, trainer_name, refused, model_dir):
    adapter = load_replay(trainer_name)
    modes = getattr(adapter, "MODES", {})
    if "asynchronous" not in modes:
        assert_refused(package, REFUSED[trainer_name])
        return
    case = replace(RUNS["rebn"], also=modes["asynchronous"])
    result = teacher_forced(
        case.recipe(list(refused), STEPS), model_dir, adapter.replay_run, adapter.TRAITS
    )
    assert not result.faults, "; ".join(result.faults)
    assert len(result.policy) == STEPS + 1


def assert_refused(package, keys):
    from gem_core.runs.recipe.load import load_recipe

    translate = import_module(f"{package}.config").translate
    for key in keys:
        recipe = load_recipe("guess-the-number-easy", "tiny", [key])
        name = key.partition("=")[0].split(".", 2)[2]
        with pytest.raises(GemError, match=name.replace(".", r"\.")):
            translate(recipe)
