"""Evaluations divided over processes: the outcomes of one, and no share that is missing."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from gem_core.errors import GemError
from gem_core.evaluation import child
from gem_core.evaluation.child import episodes_by
from gem_core.evaluation.local import evaluation_episodes
from gem_core.evaluation.outcomes import read_outcomes
from gem_core.runs.recipe.load import override
from gem_core.training.eval_engine import ENGINE_LOG
from gem_core.training.experiment import run_experiment

STAND_IN = str(Path(__file__).parent / "stand_in")
TWO = ["hardware.gpus_per_node=2"]
MIX = [
    "env=[{id='game:GuessTheNumber-v0-easy'}, {id='game:GuessTheNumber-v0-hard'}]",
    "limits.max_turns=2",
]


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    """A vLLM and an SGLang for the processes that these tests start."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([STAND_IN, *sys.path]))


def played(episodes):
    """What happened in each episode, in order."""
    return [
        (e.index, e.env_id, e.seed, [(t.observation, t.action, t.reward) for t in e.turns])
        for e in episodes
    ]


def test_two_processes_play_what_one_plays(recipe, model_dir, tmp_path):
    """An odd number of tasks of two environments, sampled: any other draw is another episode."""
    recipe = override(recipe, [*MIX, *TWO])
    answer = episodes_by("hf", recipe, model_dir, tmp_path / "log", 7)
    assert answer.processes == 2
    assert played(answer.episodes) == played(evaluation_episodes(recipe, model_dir, 7))
    assert len({e.env_id for e in answer.episodes[:3]}) == 2  # also within a share
    assert (tmp_path / "log").exists() and (tmp_path / "log-1").exists()


def test_a_run_with_two_processes_has_the_result_of_one(
    recipe, model_dir, trainer_name, tmp_path, monkeypatch
):
    def launch(resolved, run, *, resume):
        run.log(1, {"success/mean": 0.5})
        shutil.copytree(model_dir, run.model)

    def made(name, *keys):
        short = override(recipe, ["eval.episodes=7", "train.steps=1", *TWO, *keys])
        return run_experiment(short, trainer_name, tmp_path / name, log=lambda line: None)

    monkeypatch.setattr("gem_core.training.experiment.launch", launch)
    one, two = made("one"), made("two", "eval.engine=trainer")
    assert (two.path / ENGINE_LOG).exists() and (two.path / "evaluation-1.log").exists()
    assert not (one.path / ENGINE_LOG).exists()
    assert read_outcomes(two) == read_outcomes(one) and len(read_outcomes(one)) == 2
    assert two.result["eval_engines"] == one.result["eval_engines"]
    for when in ("before", "after"):
        a, b = one.result[when], two.result[when]
        assert {k: b[k] for k in a if not timed(k)} == {k: v for k, v in a.items() if not timed(k)}
        assert b["time/load"] > 0 and b["time/engine"] > 0


def timed(name):
    """Whether a figure is of wall time."""
    return name == "seconds" or name.startswith("time/")


def test_a_share_is_never_missing(recipe, model_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(child, "_variables", lambda *_: [{}, {"STAND_IN_FAULT": "killed"}])
    end = r"the end of .*log-1:.*the last line before the end"
    message = rf"(?s)^Process 2 of 2 of the evaluation with vLLM ended with exit code -9; {end}"
    with pytest.raises(GemError, match=message):
        episodes_by("vllm", recipe, model_dir, tmp_path / "log", 4)


def test_a_process_that_hangs_is_an_error_and_ends(recipe, model_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(child, "SILENCE_S", 0.5)
    message = r"(?s)with vLLM has not got on for 0.5 s; the end of .*log"
    monkeypatch.setenv("STAND_IN_FAULT", "hangs")
    with pytest.raises(GemError, match=message):
        episodes_by("vllm", recipe, model_dir, tmp_path / "log", 4)


@pytest.mark.parametrize(
    ("given", "wanted", "count", "seen"),
    [
        ("4,6,7", 2, 9, ["4", "6"]),
        ("4", 8, 9, ["4"]),  # a node with fewer GPUs than the recipe has
        ("0,1,2,3", 4, 3, ["0", "1", "2"]),  # no process without a task
        ("GPU-a, MIG-b", 2, 9, ["GPU-a", "MIG-b"]),
    ],
)
def test_each_process_sees_one_gpu(recipe, monkeypatch, tmp_path, given, wanted, count, seen):
    started = []

    def capture(programs, silence_s):
        started.extend(programs)
        requests = [json.loads((p.sign.parent / child.REQUEST).read_text()) for p in programs]
        shares.extend(index for request in requests for index in range(*request["tasks"]))
        raise GemError("enough")

    shares = []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    monkeypatch.setattr(child, "run_programs", capture)
    gpu = override(recipe, ["hardware.device=gpu", f"hardware.gpus_per_node={wanted}"])
    with pytest.raises(GemError, match="enough"):
        episodes_by("vllm", gpu, "model", tmp_path / "e.log", count)
    assert [program.environment["CUDA_VISIBLE_DEVICES"] for program in started] == seen
    assert shares == list(range(count))
    assert len({program.log for program in started}) == len(seen)


def test_without_a_gpu_there_is_no_evaluation_on_one(recipe, monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    gpu = override(recipe, ["hardware.device=gpu"])
    with pytest.raises(GemError, match=r"finds no GPU on this machine: .* set eval.engine=hf"):
        episodes_by("vllm", gpu, "model", tmp_path / "log", 4)


def test_sglang_plays_what_transformers_plays(recipe, model_dir, tmp_path):
    """Caps, stop tokens and greedy sampling arrive; for a seed the pinned release has no field."""
    recipe = override(recipe, [*TWO, "eval.temperature=0", "limits.max_tokens_per_turn=3"])
    answer = episodes_by("sglang", recipe, model_dir, tmp_path / "log", 6)
    assert played(answer.episodes) == played(evaluation_episodes(recipe, model_dir, 6))
    assert answer.version == "0.0.stand-in"
    logs = [tmp_path / name for name in ("log", "log-1")]
    told = [json.loads(log.read_text().splitlines()[0]) for log in logs]
    assert told == [{"random_seed": 0, "port": 30000}, {"random_seed": 1000, "port": 31000}]
