"""The list of baselines: every one has a recipe of its category, in every profile."""

from __future__ import annotations

from collections import Counter

import pytest

from gem_core.errors import RecipeError
from gem_core.runs.recipe.files import read_tables, shipped
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.recipe.suite import load_suite

SUITE = load_suite()


def test_the_list_is_of_different_baselines_and_of_all_categories():
    assert len(SUITE) == len({baseline.name for baseline in SUITE}) == 24
    assert Counter(baseline.category for baseline in SUITE)["games"] == 12
    assert Counter(baseline.category for baseline in SUITE)["reasoning-gym"] == 6
    assert {baseline.category for baseline in SUITE} == set(shipped("bases"))


@pytest.mark.parametrize("profile", sorted(shipped("profiles")))
@pytest.mark.parametrize("baseline", SUITE, ids=lambda baseline: baseline.name)
def test_every_baseline_loads_with_every_profile(baseline, profile):
    recipe = load_recipe(baseline.name, profile)
    assert recipe.name == baseline.name
    assert recipe.sources["algorithm.gamma"]


def test_a_baseline_has_the_tables_of_its_base():
    base = read_tables(shipped("bases")["games"], None, [])
    tables = read_tables("sokoban-easy", None, [])
    assert tables["context"] == base["context"]
    assert "base" not in tables


def test_the_paper_has_another_model_for_code():
    assert load_recipe("code-contest", "paper").model.path == "Qwen/Qwen3-4B-Base"
    assert load_recipe("sokoban-easy", "paper").model.path == "Qwen/Qwen3-1.7B-Base"


@pytest.mark.parametrize(
    ("base", "message"), [('"gamess"', "Did you mean 'games'"), ("3", "base: 3 is not the name")]
)
def test_an_unknown_base_is_refused(tmp_path, base, message):
    path = tmp_path / "mine.toml"
    path.write_text(f'base = {base}\nname = "mine"\n[[env]]\nid = "game:Sudoku-v0-easy"\n')
    with pytest.raises(RecipeError, match=message):
        load_recipe(path)
