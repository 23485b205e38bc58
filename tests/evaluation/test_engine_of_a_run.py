"""A whole run whose evaluations go through a process of their own; the trainer only copies."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from gem_core.cli import main
from gem_core.errors import GemError
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import override
from gem_core.training.eval_engine import ENGINE_LOG
from gem_core.training.experiment import run_experiment

STAND_IN = str(Path(__file__).parent / "stand_in")
VLLM = "vllm 0.0.stand-in"


def children():
    """Process ids of this process's children."""
    files = Path("/proc/self/task").glob("*/children")
    return {int(word) for file in files for word in file.read_text().split()}


@pytest.fixture
def started(monkeypatch, recipe, model_dir):
    """A recipe with evaluations by the stand-in of vLLM, and the processes that training saw."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([STAND_IN, *sys.path]))
    monkeypatch.setattr("gem_core.training.eval_engine.find_spec", lambda name: True)
    below = []
    before = children()  # those that other tests have left

    def launch(resolved, run, *, resume):
        below.append(sorted(children() - before))
        run.log(1, {"success/mean": 0.5})
        shutil.copytree(model_dir, run.model)

    monkeypatch.setattr("gem_core.training.experiment.launch", launch)
    return override(recipe, ["eval.engine=vllm", "eval.episodes=6", "train.steps=1"]), below


def test_a_run_says_by_what_its_evaluations_were_made(started, trainer_name, tmp_path):
    recipe, below = started
    lines = []
    run = run_experiment(recipe, trainer_name, tmp_path / "run", log=lines.append)
    assert below == [[]], "the engine's process lives while training runs"
    assert run.result["eval_engines"] == {"before": VLLM, "after": VLLM}
    assert [(row["when"], row["engine"]) for row in run.evals()] == [
        ("before", VLLM),
        ("after", VLLM),
    ]
    assert run.result["before"]["success/mean"] == run.result["after"]["success/mean"]
    assert "engine" not in run.result["before"]
    assert any(line.startswith("Before: ") and line.endswith(f"by {VLLM}") for line in lines)
    assert (run.path / ENGINE_LOG).exists()


def test_an_evaluation_that_dies_is_made_again_by_a_resumed_run(
    started, trainer_name, tmp_path, monkeypatch
):
    recipe, below = started
    monkeypatch.setenv("STAND_IN_FAULT", "killed")
    with pytest.raises(GemError, match=rf"exit code -9; the end of .*{ENGINE_LOG}"):
        run_experiment(recipe, trainer_name, tmp_path / "run", log=lambda line: None)
    assert below == [] and RunDir(tmp_path / "run").evals() == []
    monkeypatch.delenv("STAND_IN_FAULT")
    run = run_experiment(recipe, trainer_name, tmp_path / "run", "resume", log=lambda line: None)
    assert [row["when"] for row in run.evals()] == ["before", "after"]


def test_the_command_evaluates_by_the_engine_of_the_recipe(
    recipe, model_dir, tmp_path, monkeypatch
):
    """In the command's own process, which ends with the evaluation."""
    run = RunDir.create(tmp_path / "run", override(recipe, ["eval.episodes=6"]), "trl")
    shutil.copytree(model_dir, run.model)

    def evaluated(name, *keys):
        words = [word for key in keys for word in ("--set", key)]
        out = tmp_path / name
        assert main(["eval", str(run.path), "--episodes", "6", "--out", str(out), *words]) == 0
        return [(e.seed, [t.action for t in e.turns]) for _, e in RunDir(out).episodes()]

    expected = evaluated("hf")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "vllm", None)
        assert main(["eval", str(run.path), "--episodes", "6", "--set", "eval.engine=vllm"]) == 2
    with monkeypatch.context() as patch:
        patch.syspath_prepend(STAND_IN)
        for name in ("vllm", "vllm.sampling_params"):
            patch.delitem(sys.modules, name, raising=False)
        assert sorted(evaluated("vllm", "eval.engine=vllm")) == sorted(expected)
        for name in ("vllm", "vllm.sampling_params"):
            patch.delitem(sys.modules, name, raising=False)
