"""How many threads the processes of a CPU run get: few for the tiny model, the cores for others."""

from __future__ import annotations

import os
import sys
import tempfile
from types import SimpleNamespace

import pytest

from gem_adapters.cpu_threads import VARIABLE
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
    return threads_of_trl(recipe) if trainer == "trl" else variables_of_oat(recipe)


def threads_of_trl(recipe):
    """Return what TRL's adapter gives torch in this process."""
    from gem_trl import launch

    given = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch.torch, "set_num_threads", given.append)
        patch.setattr(launch, "end_with_parent", lambda: None)
        launch.prepare(recipe)
    return {VARIABLE: str(given.pop())}


def variables_of_oat(recipe):
    """Return the variables that Oat's own program leaves to its processes."""
    from gem_oat import program

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.delenv(VARIABLE, raising=False)
        patch.setattr(sys, "argv", ["program", folder, "0"])
        patch.setattr(program, "RunDir", lambda _: SimpleNamespace(recipe=recipe))
        patch.setattr(program.launch, "arguments", lambda *_: None)
        patch.setattr(program.launch, "launch_program", lambda _: None)
        program.main()
        return {VARIABLE: os.environ.pop(VARIABLE)}


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_pretrained_model_gets_the_cores_and_the_tiny_one_few_threads(
    trainer_name, ranks, monkeypatch
):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(6))
    hardware = f"hardware.gpus_per_node={ranks}"
    tiny = load_recipe("guess-the-number-easy", "tiny", (hardware,))
    other = load_recipe("guess-the-number-easy", "gemma", (OTHER, hardware))
    assert variables(trainer_name, other)[VARIABLE] == str(6 // ranks)
    assert variables(trainer_name, tiny)[VARIABLE] == ("2" if trainer_name == "trl" else "1")
