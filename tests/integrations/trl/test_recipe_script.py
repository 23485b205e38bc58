"""``recipes/trl/train.py`` trains what ``gem-core train`` trains."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from gem_core.errors import RecipeError, RunError
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.resolved import resolve_run
from gem_trl import launch

SCRIPT = Path(__file__).parents[3] / "recipes" / "trl" / "train.py"
KEYS = ["train.steps=2", "batch.episodes=8", "algorithm.epochs=2", "train.save_every=1"]
KEYS += ["model.tiny.warm_start_steps=0"]


@pytest.fixture
def script(tmp_path):
    """``script(*arguments)``: run it in this process; returns the run directory."""

    def run(*arguments, keys=KEYS):
        overrides = [part for key in keys for part in ("--set", key)]
        main = runpy.run_path(str(SCRIPT))["main"]
        main(["--run", str(tmp_path / "script"), *overrides, *arguments])
        return RunDir(tmp_path / "script")

    return run


@pytest.mark.parametrize("estimator", ["rebn", "gae"])
def test_the_script_trains_what_the_launcher_trains(script, tmp_path, capsys, estimator):
    opened = script(keys=[*KEYS, f"algorithm.estimator={estimator}"])
    assert f"model in {opened.model}" in capsys.readouterr().out
    launched = RunDir.create(tmp_path / "launched", opened.recipe, "trl")
    launch.run(resolve_run(opened.recipe, "trl"), launched)
    assert [figures(row) for row in opened.metrics()] == [figures(r) for r in launched.metrics()]
    assert [e.segments for _, e in opened.episodes()] == [
        e.segments for _, e in launched.episodes()
    ]
    weights = AutoModelForCausalLM.from_pretrained(opened.model).state_dict()
    expected = AutoModelForCausalLM.from_pretrained(launched.model).state_dict()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def figures(row):
    return {name: value for name, value in row.items() if not name.startswith("time")}


def test_the_script_resumes_its_run(script):
    script()
    with pytest.raises(RunError, match="--resume"):
        script()
    assert [row["step"] for row in script("--resume").metrics()] == [1, 2]


def test_the_script_runs_in_two_processes(tmp_path):
    recipe = load_recipe("guess-the-number-easy", "tiny", KEYS)
    run = RunDir.create(tmp_path / "run", recipe, "trl")
    overrides = [part for key in KEYS for part in ("--set", key)]
    two = load_recipe("guess-the-number-easy", "tiny", [*KEYS, "hardware.gpus_per_node=2"])
    arguments = ["--run", str(run.path), *overrides, "--resume"]
    launch.start_processes(two, str(SCRIPT), arguments)
    assert [row["step"] for row in run.metrics()] == [1, 2]
    assert [episode.index for _, episode in run.episodes()] == [0, 1, 2, 3, 8, 9, 10, 11]
    assert (run.model / "config.json").exists()


def test_what_is_refused_leaves_no_run(script, tmp_path):
    with pytest.raises(RecipeError, match=r"algorithm\.kl_in"):
        script(keys=[*KEYS, "algorithm.kl_in=reward"])
    assert not (tmp_path / "script").exists()
