"""A random tiny model with the suite's tokenizer, recipes on it, and trainers without a run."""

from __future__ import annotations

import pytest
from transformers import AutoTokenizer

from gem_core.runs.recipe.load import load_recipe
from gem_core.training.tiny import model_path
from gem_trl.policy import EnginePolicy
from gem_trl.trainer import GemTrainer


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """A model cache of the test session's own."""
    patch = pytest.MonkeyPatch()
    patch.setenv("GEM_CORE_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.fixture(scope="session")
def make_recipe():
    """``make_recipe(*overrides)``: 8 episodes a step on an untrained tiny model."""

    def make(*overrides):
        small = ["model.tiny.warm_start_steps=0", "batch.episodes=8", "train.steps=3"]
        small += ["eval.episodes=8", "train.save_every=0", "algorithm.epochs=1"]
        return load_recipe("guess-the-number-easy", "tiny", [*small, *overrides])

    return make


@pytest.fixture
def make_trainer(make_recipe, tmp_path):
    """``make_trainer(*overrides, cls=GemTrainer, callbacks=())``."""
    source = model_path(make_recipe())

    def make(*overrides, cls=GemTrainer, callbacks=()):
        recipe = make_recipe(*overrides)
        tokenizer = AutoTokenizer.from_pretrained(source)
        folder = tmp_path / "checkpoints"
        return cls.from_recipe(recipe, source, tokenizer, folder, callbacks)

    return make


@pytest.fixture
def scripted():
    """``scripted(trainer, texts)``: TRL generates these texts, in turn, instead of sampling."""

    def install(trainer, texts):
        generated = []

        def generate(prompt_ids, images, multimodal_fields, num_generations):
            rows = []
            for _ in prompt_ids:
                text = texts[len(generated) % len(texts)]
                generated.append(text)
                ids = trainer.processing_class.encode(text, add_special_tokens=False)
                rows.append([*ids, trainer.processing_class.eos_token_id])
            return rows, None

        trainer._generate_single_turn = generate
        # As on a GPU: on a CPU the adapter samples with gem_core's engine, not by TRL.
        trainer.engine_policy = EnginePolicy(trainer, trainer.engine_policy.stop_ids)
        return generated

    return install
