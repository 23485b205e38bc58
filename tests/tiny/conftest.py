"""Tiny models with a short warm start, in a cache of the test session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import transformers

from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.recipe.recipe import Recipe
from gem_core.training.tiny import model_path

BASELINE = "guess-the-number-easy"
QUICK = ("model.tiny.warm_start_steps=12", "model.tiny.warm_start_batch=16")


@pytest.fixture(scope="session")
def tiny_recipe() -> Callable[..., Recipe]:
    """``tiny_recipe(*overrides)``: the tiny profile with a warm start of twelve steps."""

    def load(*overrides: str) -> Recipe:
        untrained = "model.tiny.warm_start_steps=0" in overrides
        return load_recipe(BASELINE, "tiny", [*QUICK[: 1 if untrained else 2], *overrides])

    return load


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a cache in which nothing is; pytest has a fixture ``cache`` of its own."""
    monkeypatch.setenv("GEM_CORE_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="session")
def quick_model(
    tmp_path_factory: pytest.TempPathFactory, tiny_recipe: Callable[..., Recipe]
) -> Path:
    """A tiny model with a warm start of twelve steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEM_CORE_CACHE", str(tmp_path_factory.mktemp("cache")))
        return Path(model_path(tiny_recipe()))


@pytest.fixture(scope="session")
def tokenizer(quick_model: Path) -> transformers.PreTrainedTokenizerBase:
    """The tiny tokenizer as this environment's transformers loads it."""
    return transformers.AutoTokenizer.from_pretrained(quick_model)
