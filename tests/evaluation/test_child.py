"""Evaluations by vLLM in a process of its own; gem_core's engine stands in for vLLM there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gem_core.errors import GemError
from gem_core.evaluation.child import episodes_by
from gem_core.evaluation.local import evaluation_episodes
from gem_core.evaluation.measure import measure
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.environments.description import in_run
from gem_core.runs.recipe.load import override

STAND_IN = str(Path(__file__).parent / "stand_in")


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    """A vLLM for the processes that these tests start."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([STAND_IN, *sys.path]))


def played(episodes):
    """What happened in each episode."""
    return [
        (e.seed, [(t.observation, t.action, t.reward, t.finish_reason) for t in e.turns])
        for e in episodes
    ]


@pytest.mark.parametrize(
    "keys",
    [
        ["eval.temperature=0", "limits.max_tokens_per_turn=2"],
        ["eval.temperature=0.7", "sampling.top_k=4", "sampling.top_p=0.9"],
        ["eval.temperature=1.5", "eval.top_p=0.6"],
    ],
)
def test_it_plays_what_transformers_plays(recipe, model_dir, tmp_path, keys):
    """Seeds, caps, stop tokens and sampling arrive: any other draw would be another episode."""
    recipe = override(recipe, keys)
    answer = episodes_by("vllm", recipe, model_dir, tmp_path / "log", 12)
    expected = evaluation_episodes(recipe, model_dir, 12)
    assert played(answer.episodes) == played(expected)
    assert [e.segments[0].token_ids for e in answer.episodes] == [
        e.segments[0].token_ids for e in expected
    ]
    assert answer.version == "0.0.stand-in"
    assert 0 < answer.engine_s <= answer.play_s and answer.rows >= answer.steps > 0


def test_the_figures_say_by_what_they_were_made(recipe, model_dir, tmp_path):
    few = override(recipe, ["eval.episodes=6"])
    metrics, engine, outcomes = measure(few, model_dir, tmp_path / "log")
    assert engine.startswith("transformers ")
    other, by, same = measure(override(few, ["eval.engine=vllm"]), model_dir, tmp_path / "log")
    assert by == "vllm 0.0.stand-in"
    assert same == outcomes and outcomes.count("1") == round(6 * metrics["success/mean"])
    for name in ("success/mean", "success/low", "reward/mean", "turns/mean", "episodes"):
        assert other[name] == metrics[name]
    assert 0 < other["time/engine"] < other["seconds"]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("load", r"(?s)vLLM ended with exit code 1; the end of .*no memory for the engine"),
        ("killed", r"(?s)vLLM ended with exit code -9; the end of .*the last line before the end"),
        ("leaves", r"vLLM ended without an answer; see .*log"),
    ],
    ids=["load", "killed", "leaves"],
)
def test_a_process_that_dies_is_an_error(recipe, model_dir, tmp_path, monkeypatch, fault, message):
    monkeypatch.setenv("STAND_IN_FAULT", fault)
    with pytest.raises(GemError, match=message):
        episodes_by("vllm", recipe, model_dir, tmp_path / "log", 4)


def test_it_has_the_data_of_the_run(recipe, model_dir, tmp_path):
    rows = tmp_path / "rows.jsonl"
    question = {"problem": "What is 1 + 1?", "answer": "2"}
    rows.write_text(json.dumps(question) + "\n")
    table = f"env=[{{id='qa:HotpotQA', kwargs={{dataset='{rows}', part='all'}}}}]"
    recipe = override(recipe, [table, "limits.max_turns=1"])
    run = RunDir.create(tmp_path / "run", recipe, "trl")
    with in_run(run):
        answer = episodes_by("vllm", recipe, model_dir, tmp_path / "log", 2)
        assert "What is 1 + 1?" in answer.episodes[0].turns[0].observation
        rows.write_text(json.dumps({**question, "problem": "What is 2 + 0?"}) + "\n")
        with pytest.raises(GemError, match=r"(?s)DataError: .*and this process differ"):
            episodes_by("vllm", recipe, model_dir, tmp_path / "log", 2)


def test_episodes_that_fail_are_an_error(recipe, model_dir, tmp_path):
    hasty = override(recipe, ["limits.episode_deadline_s=1e-6"])
    with pytest.raises(GemError, match=r"100% of the batch's 4 episodes failed"):
        episodes_by("vllm", hasty, model_dir, tmp_path / "log", 4)


PARENT = """
import sys
from pathlib import Path
from gem_core.evaluation.child import episodes_by
from gem_core.runs.directory.run_dir import RunDir

episodes_by("vllm", RunDir(sys.argv[1]).recipe, sys.argv[2], Path(sys.argv[3]), 4)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux to end it")
@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGKILL]
)
def test_it_ends_with_its_parent(recipe, model_dir, tmp_path, monkeypatch, number):
    monkeypatch.setenv("STAND_IN_FAULT", "hangs")
    run, log = RunDir.create(tmp_path / "run", recipe, "trl"), tmp_path / "log"
    words = [sys.executable, "-c", PARENT, str(run.path), str(model_dir), str(log)]
    parent = subprocess.Popen(words)
    child = int(waited(lambda: log.exists() and log.read_text().partition("hangs in ")[2]))
    assert Path(f"/proc/{child}").exists()
    parent.send_signal(number)
    parent.wait(30)
    waited(lambda: state(child) in ("Z", ""))


def waited(condition):
    """Return what a condition gives as soon as that is true."""
    end = time.monotonic() + 120
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def state(pid):
    """The state of a process, an empty text where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""
