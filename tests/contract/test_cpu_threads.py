"""How many threads the processes of a CPU run get: one for the tiny model, the cores for others."""

from __future__ import annotations

import os

import pytest

from gem_adapters.cpu_threads import VARIABLE, cpu_threads
from gem_core.runs.recipe.load import load_recipe

OTHER = "model.path=google/gemma-3-270m"


def variables(trainer, recipe):
    """Return the environment variables of the trainer's processes."""
    if trainer == "rl2":
        from gem_rl2 import cpu

        return cpu.environment(recipe)
    if trainer == "verl":
        from gem_verl.cpu import harness

        with harness.session(recipe) as (_, given):
            return given
    if trainer == "openrlhf":
        from gem_openrlhf.cpu import harness

        with harness.session(recipe) as options:
            return options["runtime_env"]["env_vars"]
    return {VARIABLE: str(cpu_threads(recipe))}  # it trains in this process


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_pretrained_model_gets_the_cores_and_the_tiny_one_a_single_thread(
    trainer_name, ranks, monkeypatch
):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(6))
    hardware = f"hardware.gpus_per_node={ranks}"
    tiny = load_recipe("guess-the-number-easy", "tiny", (hardware,))
    other = load_recipe("guess-the-number-easy", "gemma", (OTHER, hardware))
    assert variables(trainer_name, other)[VARIABLE] == str(6 // ranks)
    assert variables(trainer_name, tiny)[VARIABLE] == "1"
