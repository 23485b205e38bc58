"""The parity benchmark's own rules: what may fill its table, and what must turn it red."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from gem_core.runs.trainers import list_trainers
from gem_parity.cases import RUNS

HERE = Path(__file__).resolve().parents[2] / "benchmarks" / "parity"


@pytest.fixture
def run(monkeypatch):
    """The benchmark's ``run`` module."""
    monkeypatch.syspath_prepend(str(HERE))
    for name in ("run", "tables"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import run

    yield run
    for name in ("run", "tables"):
        sys.modules.pop(name, None)


def result(trainer, stamp="now", **cases):
    return {"trainer": trainer, "run": {"at": stamp}, "cases": cases, "runs": {}}


def test_a_fault_of_a_case_is_red(run):
    good = result("a", one={"faults": []})
    bad = result("b", one={"faults": ["advantages differ"]})
    assert run.faults([good]) == []
    assert run.faults([good, bad]) == ["b, one: advantages differ"]


def test_a_case_that_one_trainer_did_not_measure_is_red(run):
    assert run.faults([result("a", one={"faults": []}), result("b")]) == ["b, one: not measured"]


def test_an_expected_refusal_is_green_and_any_other_red(run):
    assert run.faults([result("a", one={"refused": "as listed"})]) == []
    other = {"refused": "why", "faults": ["a refusal that refusals.json does not have"]}
    assert run.faults([result("a", one=other)])


def test_results_of_other_runs_do_not_fill_the_table(run):
    same = [result("a"), result("b")]
    assert run.not_of_one_run(same, ["a", "b"]) == []
    assert run.not_of_one_run(same, ["a", "b", "c"])
    assert run.not_of_one_run([result("a"), result("b", stamp="before")], ["a", "b"])


def test_refusals_name_trainers_and_keys_of_cases(run):
    table = json.loads((HERE / "refusals.json").read_text(encoding="utf-8"))
    assert table.keys() <= set(list_trainers())
    known = {
        name
        for case in RUNS.values()
        for text in (*case.about, *case.also)
        for name in (text, text.partition("=")[0])
    }
    known |= {"algorithm.entropy_coef", "algorithm.kl_coef"}
    assert {key for keys in table.values() for key in keys} <= known


def test_every_run_is_a_valid_recipe():
    for name, case in RUNS.items():
        algorithm = case.recipe().algorithm
        minibatches = 14 if name == "a minibatch per episode" else 2
        assert (algorithm.epochs, algorithm.minibatches, algorithm.kl_coef) == (
            3,
            minibatches,
            0.05,
        )
