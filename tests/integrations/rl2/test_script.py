"""``recipes/rl2/train.py`` shows the wiring; it must train what ``gem-core train`` trains."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from gem_core.training.runs import RunDir
from gem_rl2.config import translate
from gem_rl2.launch import run

SCRIPT = Path(__file__).parents[3] / "recipes" / "rl2" / "train.py"
# The most likely token always: what the stand-in engine samples depends on timing otherwise.
KEYS = ["batch.episodes=3", "train.steps=1", "train.log_episodes=3", "sampling.top_k=1"]


def script(*arguments):
    done = subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def repeatable(row):
    """The metrics of a step that do not depend on the clock."""
    return {name: value for name, value in row.items() if not name.startswith("time")}


def test_its_result_is_that_of_the_launcher(tiny, tmp_path):
    overrides = [argument for key in KEYS for argument in ("--set", key)]
    shown = script("--run", str(tmp_path / "script"), *overrides)
    by_script = RunDir(tmp_path / "script")
    assert str(by_script.model) in shown
    recipe = tiny(*KEYS)
    launched = RunDir.create(tmp_path / "launched", recipe, "rl2")
    run(recipe, launched)

    assert by_script.recipe == launched.recipe
    (mine,) = by_script.metrics()
    (theirs,) = launched.metrics()
    assert mine["grad_norm"] > 0
    assert repeatable(mine) == pytest.approx(repeatable(theirs), rel=1e-5, abs=1e-6)
    for (_, one), (_, other) in zip(by_script.episodes(), launched.episodes(), strict=True):
        assert one.rewards == other.rewards
        assert [s.token_ids for s in one.segments] == [s.token_ids for s in other.segments]
    weights = [
        AutoModelForCausalLM.from_pretrained(directory.model).state_dict()
        for directory in (by_script, launched)
    ]
    for name, weight in weights[0].items():
        torch.testing.assert_close(weight, weights[1][name], rtol=0, atol=1e-7)


def test_it_shows_rl2s_own_overrides(tiny):
    assert script("--print").splitlines() == translate(tiny())
