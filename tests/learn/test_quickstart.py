"""The quickstart is an experiment of the study, and the pages say what its cells show."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gem_compare.recipes import differing_keys
from gem_core.cli import main
from gem_core.runs.recipe.load import stored_recipe

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))
import quickstart_figures  # noqa: E402
import quickstart_picture  # noqa: E402

SUCCESS = (0.7, 0.5, 0.9, 0.8, 0.6)


@pytest.fixture
def judged(make_cell):
    """``judged(count, **changes)``: what that number of cells shows."""

    def judge(count, **changes):
        cells = [make_cell(seed, SUCCESS[seed], **changes) for seed in range(count)]
        return quickstart_figures.judge_experiments({"any": cells})["any"]

    return judge


def test_the_command_trains_the_recipe_of_the_cells(monkeypatch):
    asked = []

    class Stop(Exception):
        pass

    def run_experiment(recipe, trainer, *_, **__):
        asked.append((recipe, trainer))
        raise Stop

    monkeypatch.setattr("gem_core.training.experiment.run_experiment", run_experiment)
    monkeypatch.setattr("gem_core.cli.experiment._require_for_quickstart", lambda _: None)
    for name in ("CUDA_VISIBLE_DEVICES", "HF_HUB_OFFLINE"):
        monkeypatch.setenv(name, "")  # the command sets them; afterwards they are as before
    with pytest.raises(Stop):
        main(["quickstart"])
    ((recipe, trainer),) = asked
    cells = quickstart_figures.judged_quickstart().cells
    assert trainer == quickstart_figures.TRAINER and cells
    for cell in cells:
        keys = differing_keys(stored_recipe(cell.recipe), recipe)
        assert {key.split(" ")[0] for key in keys} <= {"seed", "train.log_episodes"}


def test_the_verdict_is_that_of_the_page_of_the_study():
    judged = quickstart_figures.judged_quickstart()
    page = (quickstart_figures.STUDY / "README.md").read_text(encoding="utf-8")
    page = page.partition("## Other trainers")[0]
    (row,) = [line for line in page.splitlines() if line.startswith("| sokoban-easy |")]
    assert row.endswith(f"| {judged.verdict} |")
    assert f"**{judged.verdict}**" in quickstart_figures.in_words(judged)


def test_one_seed_in_words(judged):
    text = quickstart_figures.in_words(judged(1), "../")
    assert "held-out tasks, sampled, seed 0: **0.20 before, 0.70 after** 2 steps.\n" in text
    assert "The highest of five controls, the random player, has 0.20." in text
    assert "The 200 episodes have 150 distinct tasks, none of them trained on." in text
    assert (
        "](../benchmarks/learn/README.md) of this project: **learns (one seed)**; one run" in text
    )
    assert text.endswith("says nothing about other seeds.\n")
    assert "worst" not in text and "mean" not in text


def test_five_seeds_in_words(judged):
    found = judged(5)
    text = quickstart_figures.in_words(found)
    assert "sampled, mean of the seeds 0 to 4: **0.20 before, 0.70 after** 2 steps; " in text
    assert "the worst seed, 1: 0.20 before, 0.50 after.\n" in text
    assert text.endswith("**learns**.\n") and "one run" not in text


def test_what_does_not_learn_is_not_said_to_learn(judged):
    seen = {"episodes": 200, "distinct": 99, "seen_in_training": 7}
    text = quickstart_figures.in_words(judged(5, eval_tasks=seen))
    assert "99 distinct tasks, 7 of them trained on" in text
    assert "**no: 7 of 99 tasks are trained on; 99 distinct tasks, fewer than 100**" in text


def test_without_a_cell_a_line_says_what_to_do(tmp_path):
    with pytest.raises(SystemExit, match=r"no cell of sokoban-easy: python benchmarks/learn/run"):
        quickstart_figures.judged_quickstart(tmp_path)


@pytest.mark.parametrize(("seeds", "curves", "points"), [(1, 1, 3), (5, 6, 13)])
def test_the_picture_has_a_curve_of_each_seed_and_of_the_mean(judged, seeds, curves, points):
    found = judged(seeds)
    text = quickstart_picture.picture(found)
    assert text == quickstart_picture.picture(found)
    drawn = ElementTree.fromstring(text)
    lines = drawn.findall("{*}polyline")
    assert len(lines) == curves
    assert all(len(line.get("points").split()) == len(found.cells[0].training) for line in lines)
    assert len(drawn.findall("{*}circle")) == points  # one of them is the legend's
    assert ("thin: each" in text) == (seeds > 1)
