"""``check_env`` on every id outside ``game:``; one other process checks all ids."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings

import pytest

import gem_core
from gem_core.env.checker import trace
from gem_core.envs import reasoning_gym
from gem_core.envs._data_source import SampleDataWarning

IDS = [i for i in gem_core.list_envs() if not i.startswith("game:")]
HEAVY = ("rg:futoshiki", "rg:intermediate_integration", "rg:knight_swap", "rg:quantum_lock")
"""Many seconds for an item or a grading: these get the fewest plays, and only with --slow."""
SLOWER = ("rg:codeio", "rg:puzzle24", "rg:simple_integration", "rg:sokoban", "rg:zebra_puzzles")
"""These, and those with a shell of their own, get the fewest plays, and no scripted players."""
STEPS = 3
SEEDS = (0, 1)
PATIENT_S = 120.0
"""Seconds for a score: on a full machine, those of `reasoning_gym.SCORE_S` would decide it."""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two plays of an episode differ by the code alone, not by what else the machine does."""
    monkeypatch.setattr(reasoning_gym, "SCORE_S", PATIENT_S)


def expensive(env_id: str) -> bool:
    return env_id in HEAVY or env_id.startswith("code:") or env_id == "eval:CodeContest"


def slower(env_id: str) -> bool:
    return expensive(env_id) or env_id in SLOWER or env_id.startswith("terminal:")


def steps(env_id: str) -> int:
    return 1 if slower(env_id) else STEPS


@pytest.mark.parametrize(
    "env_id", [pytest.param(i, marks=pytest.mark.slow) if expensive(i) else i for i in IDS]
)
@pytest.mark.filterwarnings("ignore::gem_core.envs._data_source.SampleDataWarning")
@pytest.mark.filterwarnings("ignore::UserWarning:reasoning_gym")
@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_every_id_keeps_its_promises(env_id: str) -> None:
    seeds = (0,) if slower(env_id) else SEEDS
    skip = ("process", "players") if slower(env_id) else ("process",)
    gem_core.check_env(env_id, skip=skip, steps=steps(env_id), seeds=seeds)


CHILD = """
import contextlib, json, sys, warnings
warnings.simplefilter("ignore")
sys.path[:] = json.loads(sys.argv[1])
import gem_core
from gem_core.env.checker import trace
from gem_core.envs import reasoning_gym
steps, reasoning_gym.SCORE_S = json.loads(sys.stdin.read())
with contextlib.redirect_stdout(sys.stderr):  # some packages print while they load
    traces = {i: trace(gem_core.make(i), 0, n) for i, n in steps.items()}
print(json.dumps(traces))
"""


def test_another_process_plays_the_same_episodes() -> None:
    number = {i: steps(i) for i in IDS if not expensive(i)}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(sys.path)],
        input=json.dumps([number, PATIENT_S]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    there = json.loads(done.stdout)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SampleDataWarning)
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        for env_id, count in number.items():
            assert trace(gem_core.make(env_id), 0, count) == there[env_id], env_id
