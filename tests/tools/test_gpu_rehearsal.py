"""The committed report of ``benchmarks/gpu/run.py --cpu``: that of a GPU, but for its figures."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu"
REPORT = FOLDER / "rehearsal"
ORDER = ("trl", "verl", "openrlhf", "oat", "rl2")
CARD = {"0": {"start_mib": 500, "peak_mib": 20000, "busy_percent": 61.0, "samples": 9}}


@pytest.fixture(scope="module")
def figures():
    """The module that writes the page."""
    spec = importlib.util.spec_from_file_location("gpu_figures", FOLDER / "figures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(name):
    return json.loads((REPORT / f"{name}.json").read_text(encoding="utf-8"))


def test_there_is_a_report():
    assert {path.stem for path in REPORT.glob("*.json")} == {"machine", *ORDER}


@pytest.mark.parametrize("name", ORDER)
def test_a_trainer_has_trained(name):
    row = read(name)
    assert (row["trainer"], row["status"], row["exit"]) == (name, "trained", 0)
    assert row["rehearsal"] is True and row["gpu"] is None and row["memory"] is None
    assert row["steps"] == len(row["metrics"]) == 3 and row["first_step_s"] > 0
    later = row["metrics"][1:]
    sampled = sum(step["tokens/action"] * step["episodes"] for step in later)
    played = sum(step["time/rollout"] for step in later)
    assert row["sampled_tokens_per_s"] == pytest.approx(sampled / played)
    seen = [value for value in row["logprob_difference"] if value is not None]
    assert all(0 <= value < 1e-2 for value in seen)
    assert 0 < row["engine_busy"] < 1 and row["trained_tokens_per_s"] > 0


def test_the_page_is_what_the_program_writes_of_it_and_says_what_it_is(figures):
    page = (REPORT / "summary.md").read_text(encoding="utf-8")
    machine = read("machine")
    assert page == figures.page([read(name) for name in ORDER], machine)
    assert machine["gpus"] == [] and not machine["commit"].endswith("+")
    assert page.splitlines()[2] == f"**{figures.REHEARSAL}**"
    assert "not a GPU result" in figures.REHEARSAL


def test_a_gpu_adds_its_figures_and_changes_nothing_else(figures):
    machine = read("machine")
    gpu = {**machine, "gpus": ["NVIDIA X"], "rehearsal": False}
    row = read("trl")
    pages = [
        figures.page([{**row, "gpu": found}], where).splitlines()
        for found, where in ((None, machine), (CARD, gpu))
    ]
    rehearsed, real = pages
    assert real[2].startswith("NVIDIA X; ") and rehearsed[4].startswith("no GPU; ")
    assert rehearsed[:2] + rehearsed[5:8] == real[:2] + real[3:6]  # the same columns
    before, after = (page[-2].split(" | ") if page[-1] == "" else page[-1].split(" | ")
                     for page in pages)  # fmt: skip
    assert [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b] == [8, 9]
    assert after[8:10] == ["21.0", "61%"]
