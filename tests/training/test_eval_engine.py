"""Which engine ``eval.engine`` means, with each trainer."""

from __future__ import annotations

import pytest

from gem_core.errors import RecipeError
from gem_core.evaluation.engines import engine_loader, engine_of
from gem_core.runs.recipe.load import load_recipe
from gem_core.training.eval_engine import missing_engine

BASELINE = "guess-the-number-easy"
OWN = {"trl": "vllm", "verl": "vllm", "openrlhf": "vllm", "oat": "vllm", "rl2": "sglang"}


@pytest.mark.parametrize("profile", ["small", "paper"])
@pytest.mark.parametrize("name", OWN)
def test_a_profile_for_gpus_evaluates_with_the_trainers_engine(profile, name):
    recipe = load_recipe(BASELINE, profile)
    assert recipe.eval.engine == "trainer" and engine_of(recipe, name) == OWN[name]


@pytest.mark.parametrize(
    ("keys", "trainer", "engine"),
    [
        (["hardware.device=cpu"], "rl2", "hf"),
        (["hardware.engine=hf"], "trl", "hf"),
        (["hardware.engine=sglang"], "verl", "sglang"),
        (["eval.engine=hf"], "verl", "hf"),
        (["eval.engine=vllm"], "rl2", "vllm"),
        ([], None, "hf"),  # gem-core eval of a recipe
    ],
)
def test_what_a_recipe_says_comes_first(keys, trainer, engine):
    assert engine_of(load_recipe(BASELINE, "small", keys), trainer) == engine


def test_what_is_missing_is_the_engine_of_the_trainer():
    recipe = load_recipe(BASELINE, "small")
    what, line = missing_engine(recipe, "rl2", lambda name: name != "sglang")
    assert what == 'eval.engine = "trainer", and SGLang is not in this environment of rl2'
    assert "sglang" in line
    assert missing_engine(recipe, "rl2", lambda name: name == "sglang") is None


def test_an_engine_is_loaded_by_what_an_adapter_declares(monkeypatch):
    assert engine_loader("vllm").__module__ == "gem_adapters.vllm_evaluation"
    assert engine_loader("sglang").__module__ == "gem_adapters.sglang_evaluation"
    monkeypatch.setattr("gem_core.evaluation.engines.list_trainers", dict)
    with pytest.raises(RecipeError, match=r'has "vllm"; use eval.engine=hf'):
        engine_loader("vllm")
