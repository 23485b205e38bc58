"""Loss and gradient against plain torch beyond the contract: micro-batches, the body."""

from __future__ import annotations

import numpy as np
import pytest
import transformers

from gem_parity.reference import compare, reference
from gem_parity.replay import expected_rows
from gem_replays.oat import replay


@pytest.fixture(scope="module")
def model_dir(make_model):
    return make_model(tied=False)


@pytest.fixture
def both(recipe, episodes, model_dir):
    """What Oat and the reference make of the frozen batch."""

    def run(*overrides):
        small = recipe("batch.episodes=16", "batch.group_size=2", *overrides)
        replayed = replay(small, episodes(), model_dir)
        model = transformers.AutoModelForCausalLM.from_pretrained(model_dir).float()
        return replayed, reference(small, expected_rows(small, episodes()), model)

    return run


@pytest.mark.parametrize(
    "overrides",
    [
        ["batch.micro_batch=1"],
        ["batch.micro_batch=5"],
        ["batch.micro_batch=5", "algorithm.loss_aggregation=sequence", "algorithm.epochs=2"],
        ["sampling.temperature=0.7", "trainer.oat.zero_stage=1"],
    ],
)
def test_the_first_update_is_the_references(both, overrides):
    oats, expected = both(*overrides)
    assert oats.loss == pytest.approx(expected.loss, abs=1e-6)
    cosine, ratio = compare(oats.gradients, expected.gradients)
    assert cosine > 1 - 1e-6 and ratio == pytest.approx(1, abs=1e-4)
    body = [name for name in oats.gradients if ".layers." in name]
    assert len(body) >= 20
    for name in body:  # not the head alone
        assert np.abs(oats.gradients[name]).max() > 0, name
        np.testing.assert_allclose(
            oats.gradients[name], expected.gradients[name], rtol=1e-3, atol=1e-6
        )
