"""The plan beside the updates that ``benchmarks/gpu_memory`` ran, and the pages that it wrote."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "benchmarks" / "gpu_memory"
TRAINERS = ("trl", "verl", "openrlhf", "oat", "rl2")
ROWS = json.loads((FOLDER / "result.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def page():
    """The module that writes the pages."""
    spec = importlib.util.spec_from_file_location("gpu_memory_page", FOLDER / "page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['trainer']}-{row['model']}")
def test_the_plan_is_within_a_tenth_of_the_update(page, row):
    assert page.planned(row).total == pytest.approx(row["peak"], rel=0.1)


def test_every_trainer_has_three_sizes():
    sizes = {(row["trainer"], row["model"]) for row in ROWS if row["gpus"] == 8}
    models = ("Qwen3-0.6B", "Qwen3-1.7B", "Qwen3-4B")
    assert sizes == {(trainer, model) for trainer in TRAINERS for model in models}


@pytest.mark.parametrize("path", [FOLDER / "README.md", ROOT / "docs" / "gpu.md"], ids=str)
def test_the_table_of_the_page_is_that_of_the_result(page, path):
    assert page.comparison(ROWS).strip() in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["guess-the-number-easy", "math-12k-python"])
def test_what_fits_is_what_the_plan_says_now(page, name):
    answers = page._answers(name)
    text = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
    table = page.fits_table(answers).strip()
    assert table in text and f"{answers[0]} and rows of {answers[1]} tokens" in text
