"""The metrics of the updates: the policy's loss is what it is without the KL term."""

from __future__ import annotations

import pytest

from gem_core.runs.recipe.load import load_recipe
from gem_parity.frozen import frozen_episodes
from gem_parity.small_model import write_model
from gem_trl.updates import Updates

KEYS = [
    "batch.episodes=16",
    "batch.group_size=2",
    "train.steps=1",
    "algorithm.epochs=2",
    "algorithm.minibatches=1",
    "algorithm.lr=0.01",
]


class Kept(Updates):
    """Keeps the policy's losses."""

    def __init__(self, algorithm):
        super().__init__(algorithm)
        self.kept = []

    def add(self, *args):
        super().add(*args)
        super().end_update()
        self.kept = self.policy_losses


@pytest.mark.parametrize("aggregation", ["token", "sequence"])
def test_a_kl_term_changes_no_policy_loss(tmp_path, aggregation):
    """The first update is the same with and without it: there it is 0, and so is its gradient.

    Some of the frozen episodes failed, and their rows have no part in a mean over sequences.
    """
    from gem_replays.trl import _Replayer, _tokenizer

    model = write_model(tmp_path / "model")
    losses = {}
    for coefficient in (0.0, 0.5):
        keys = [f"algorithm.kl_coef={coefficient}", f"algorithm.loss_aggregation={aggregation}"]
        recipe = load_recipe("guess-the-number-easy", "tiny", [*KEYS, *keys])
        trainer = _Replayer.from_recipe(recipe, model, _tokenizer(model), tmp_path / "run", [])
        trainer.frozen = frozen_episodes(16, group_size=2)
        trainer.updates = Kept(recipe.algorithm)
        trainer.train()
        assert trainer.step_batch.row_scale == 1 or aggregation == "sequence"
        losses[coefficient] = trainer.updates.kept
    assert len(losses[0.5]) == 2
    assert losses[0.5] == pytest.approx(losses[0.0], abs=1e-6)
    assert any(not sum(map(sum, (s.loss_mask for s in e.segments))) for e in trainer.frozen)
