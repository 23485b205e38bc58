"""The study of what learns: verdicts, tables, and the page that its committed cells give."""

from __future__ import annotations

import msgspec
import pytest

from gem_core.errors import RunError

NAME = "guess-the-number-easy"
SEEDS = range(5)


def write(folder, cells):
    from learn_cells import write_cell

    for cell in cells:
        write_cell(folder, cell)
    return folder


def row(text, *begins):
    """Return the cells of the row of a table that begins so."""
    rows = [[part.strip() for part in line.strip("|").split("|")] for line in text.splitlines()]
    (found,) = [one for one in rows if one[: len(begins)] == list(begins)]
    return found


def test_the_committed_page_is_made_from_the_committed_cells(pages):
    assert pages.page() == pages.PAGE.read_text(encoding="utf-8")


def test_a_baseline_above_every_control_learns(pages, make_cell, tmp_path):
    cells = [make_cell(seed, 0.7) for seed in SEEDS]
    text = pages.page(write(tmp_path, cells))
    found = row(text, NAME, "0 to 4")
    assert found[2:8] == ["150 / 0", *["0.200"] * 5]
    assert found[8] == "0.700 (0.700)" and found[9].startswith("+0.500 [+0.4")
    assert found[10:] == ["0.000", "learns"]
    assert "1 of 24 baselines learn by the criterion. 23 have no cell yet." in text
    assert row(text, "sudoku-easy")[1] == "missing"
    assert "- `sudoku-easy`: nothing was tried yet." in text and f"- `{NAME}`" not in text


def test_what_was_tried_stands_beside_a_baseline_that_does_not_learn(
    pages, make_cell, tmp_path, monkeypatch
):
    file = tmp_path / "tried.toml"
    file.write_text(f'{NAME} = """\nA longer start:\n0.2 to 0.2."""\nhangman-easy = "Words."\n')
    monkeypatch.setattr(pages, "TRIED", file)
    text = pages.page(write(tmp_path / "cells", [make_cell(seed, 0.2) for seed in SEEDS]))
    assert f"- `{NAME}`: A longer start: 0.2 to 0.2.\n" in text
    assert "- `hangman-easy`: Words.\n" in text


def test_every_text_of_what_was_tried_is_of_a_baseline_that_does_not_learn(pages):
    import msgspec

    shown = pages.page()
    for name in msgspec.toml.decode(pages.TRIED.read_bytes()):
        assert f"- `{name}`: " in shown


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"controls": "greedy"}, "not above start_greedy"),
        ({"distinct": 99}, "99 distinct tasks, fewer than 100"),
        ({"seen_in_training": 3}, "3 of 150 tasks are trained on"),
    ],
)
def test_what_the_criterion_refuses_does_not_learn(pages, make_cell, tmp_path, changes, why):
    cells = []
    for seed in SEEDS:
        cell = make_cell(seed, 0.7)
        if "controls" in changes:
            new = {"controls": {**cell.controls, "start_greedy": cell.after.sampled}}
        else:
            new = {"eval_tasks": {**cell.eval_tasks, **changes}}
        cells.append(msgspec.structs.replace(cell, **new))
    text = pages.page(write(tmp_path, cells))
    assert row(text, NAME, "0 to 4")[-1] == f"no: {why}"
    assert "0 of 24 baselines learn" in text


def test_missing_seeds_and_a_single_one_are_said(pages, make_cell, tmp_path):
    text = pages.page(write(tmp_path / "three", [make_cell(seed, 0.7) for seed in (0, 1, 3)]))
    assert row(text, NAME)[1] == "0, 1, 3; 2, 4 missing"
    text = pages.page(write(tmp_path / "one", [make_cell(0, 0.7)]))
    assert row(text, NAME)[-1] == "learns (one seed)"
    assert "No baseline has all of these seeds yet." in text


def test_another_trainer_says_until_which_step_it_drew_the_same_tokens(pages, make_cell, tmp_path):
    other = [make_cell(seed, 0.6, trainer="verl") for seed in (0, 1, 7)]
    tokens = other[1].tokens
    other[1] = msgspec.structs.replace(other[1], tokens=[tokens[0], "another"])
    text = pages.page(write(tmp_path, [*(make_cell(seed, 0.7) for seed in SEEDS), *other]))
    found = row(text, NAME, "rebn", "verl")
    assert found[3:7] == ["0, 1, 7", "0.600 (0.600)", "0.700", "all steps, 1 of 2 steps"]
    missing = "0 learn, 0 do not, 24 without a cell"
    assert f"oat {missing}; openrlhf {missing}; rl2 {missing}; verl 1 learn, " in text
    assert text.count("verl 1 learn, 0 do not, 23 without a cell.") == 1


def test_algorithms_are_compared_on_the_baselines_that_both_have(pages, make_cell, tmp_path):
    cells = [make_cell(seed, 0.7) for seed in SEEDS]
    cells += [make_cell(seed, 0.9, baseline="sudoku-easy") for seed in SEEDS]
    cells += [make_cell(seed, 0.6, algorithm="grpo") for seed in SEEDS]
    text = pages.page(write(tmp_path, cells))
    assert row(text, "ReBN", "2")[2:] == [
        "0.200 [0.200, 0.200]",
        "0.800 [0.800, 0.800]",
        "-",
        "-",
    ]
    assert row(text, "GRPO", "1")[3:] == [
        "0.600 [0.600, 0.600]",
        "0.700 [0.700, 0.700]",
        "1.000 [1.000, 1.000]",
    ]
    assert "Baselines of which every\nalgorithm has all seeds: 1." in text
    assert row(text, "GRPO", "1.00")[1:] == ["1.00", "1.00", "1.00", "0.00", "0.00"]


def test_cells_of_different_recipes_are_not_seeds_of_one_experiment(pages, make_cell, tmp_path):
    recipe = make_cell(0, 0.7).recipe
    changed = {**recipe, "seed": 1, "algorithm": {**recipe["algorithm"], "lr": 0.5}}
    write(tmp_path, [make_cell(0, 0.7), make_cell(1, 0.7, recipe=changed)])
    with pytest.raises(RunError, match=r"different recipes \(algorithm.lr = 0.5"):
        pages.page(tmp_path)


def test_files_that_are_not_of_their_cell_are_refused(pages, make_cell, tmp_path):
    folder = write(tmp_path, [make_cell(0, 0.7)]) / NAME / "trl" / "rebn"
    text = (folder / "seed0.json").read_text()
    (folder / "seed1.json").write_text(text)
    with pytest.raises(RunError, match=r"seed1\.json is of .*seed0: move it there"):
        pages.page(tmp_path)
    (folder / "seed1.json").write_text(text.replace('"format": 1', '"format": 0'))
    with pytest.raises(RunError, match="has format 0, not 1"):
        pages.page(tmp_path)
    (folder / "seed1.json").write_text("{}")
    with pytest.raises(RunError, match=r"not the file of a cell.*delete it"):
        pages.page(tmp_path)


def test_a_cell_of_the_recipe_of_now_is_not_stale(make_cell):
    from learn_cells import has_other_recipe

    from gem_compare.grid import Cell
    from gem_core.runs.recipe.load import load_recipe

    asked = Cell(NAME, "trl", "rebn", 3)
    recipe = load_recipe(NAME, "learn", asked.overrides(["train.steps=2"])).to_dict()
    cell = make_cell(3, 0.7, recipe=recipe)
    assert not has_other_recipe(cell, asked, ["train.steps=2"])
    assert has_other_recipe(cell, asked, ["train.steps=3"])
