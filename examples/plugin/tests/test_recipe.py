"""The recipe: what it names is installed."""

from __future__ import annotations

from pathlib import Path

import gem_core
import pytest

RECIPE = Path(__file__).parents[1] / "recipe.toml"


@pytest.mark.parametrize("profile", [None, "tiny", "paper"])
def test_the_recipe_loads(profile):
    recipe = gem_core.load_recipe(RECIPE, profile)
    assert [env.id for env in recipe.env] == ["my:Change-v0"]
    assert recipe.algorithm.estimator == "my-centred"
