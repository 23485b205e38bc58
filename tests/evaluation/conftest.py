"""A tiny model with random weights: sampling is tested, not skill."""

from __future__ import annotations

import pytest
import transformers

from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.tasks import MachineFactory
from gem_core.training.tiny import model_path


@pytest.fixture(scope="session")
def recipe():
    """Guess the Number, tiny profile, a warm start of twenty steps."""
    overrides = ["model.tiny.warm_start_steps=20", "model.tiny.warm_start_batch=16"]
    return load_recipe("guess-the-number-easy", "tiny", overrides)


@pytest.fixture(scope="session")
def model_dir(recipe, tmp_path_factory):
    """Directory of the model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEM_CORE_CACHE", str(tmp_path_factory.mktemp("cache")))
        return model_path(recipe)


@pytest.fixture(scope="session")
def model(model_dir):
    """The model."""
    return transformers.AutoModelForCausalLM.from_pretrained(model_dir).eval()


@pytest.fixture(scope="session")
def factory(recipe, model_dir):
    """Machines of the recipe."""
    return MachineFactory(recipe, transformers.AutoTokenizer.from_pretrained(model_dir))
