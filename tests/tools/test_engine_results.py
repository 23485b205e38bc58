"""The page of the real engines is that of the committed results."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_current():
    command = [sys.executable, "scripts/engine_results.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_run_of_a_real_engine_learned_and_is_of_a_clean_commit(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    results = import_module("engine_results")
    for cases in results.CASES.values():
        for case in cases:
            data = results.read(case)
            assert not data["commit"].endswith("+"), case
            assert data["steps"] >= 20, case
            assert data["after"]["success/low"] > data["before"]["success/high"], case


def test_the_evaluations_are_of_a_clean_commit(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    data = import_module("engine_results").read("trl-evaluation")
    assert not data["commit"].endswith("+") and data["at_training"]["processes"] == 0


@pytest.mark.parametrize("trainer", ["TRL", "verl", "OpenRLHF", "Oat"])
def test_a_stand_in_is_beside_it(monkeypatch, trainer):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    results = import_module("engine_results")
    assert next(iter(results.CASES[trainer].values())) == "stand-in"


@pytest.mark.parametrize(
    "case", ["second-runner", "second-temperature", "second-support", "second-sampler", "kernels"]
)
def test_the_second_runner_and_the_kernels_are_of_a_clean_commit(monkeypatch, case):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    data = import_module("engine_results").read(f"trl-{case}")
    assert data["case"] == f"trl-{case}" and not data["commit"].endswith("+")
