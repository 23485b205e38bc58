"""A forward pass is as long as its own longest row, and the loss is what it was."""

from __future__ import annotations

import pytest
import torch
from transformers import TrainerCallback
from trl import GRPOTrainer

from gem_trl.padding import padding
from gem_trl.trainer import GemTrainer

KEYS = ["batch.micro_batch=2", "train.steps=1", "algorithm.epochs=2", "algorithm.minibatches=2"]
TEXTS = ["\\boxed{5}", "\\boxed{2}", "nonsense", "\\boxed{7}", "\\boxed{9}", "\\boxed{1}"]


class Trimmed(GemTrainer):
    """The adapter's trainer; it keeps the loss of each forward pass."""

    def _compute_loss(self, model, inputs):
        loss = super()._compute_loss(model, inputs)
        vars(self).setdefault("losses", []).append(float(loss.detach()))
        return loss


class Padded(Trimmed):
    """A trainer that scores as TRL does."""

    def _get_per_token_logps_and_entropies(self, *args, **kwargs):
        result = GRPOTrainer._get_per_token_logps_and_entropies(self, *args, **kwargs)
        self._scores = result[:2]
        return result


class Record(TrainerCallback):
    """Keeps the gradients of all updates."""

    def __init__(self):
        self.gradients = []

    def on_pre_optimizer_step(self, *args, **kwargs):
        weights = self.trainer.model.parameters()
        self.gradients.append(torch.cat([w.grad.flatten() for w in weights if w.grad is not None]))


def passes(trainer):
    """Masks of all forward passes, as they are made."""
    masks = []

    def note(module, args, kwargs):
        if kwargs["attention_mask"].dim() == 2:  # the engine's have a dimension for heads, too
            masks.append(kwargs["attention_mask"].bool())

    trainer.model.base_model.register_forward_pre_hook(note, with_kwargs=True)
    return masks


@pytest.fixture
def train(make_trainer, scripted):
    """``train(cls, *keys)``: losses, gradients and masks of a step with episodes of any length."""

    def run(cls, *keys):
        record = Record()
        trainer = make_trainer(*KEYS, *keys, cls=cls, callbacks=[record])
        scripted(trainer, TEXTS)
        masks = passes(trainer)
        trainer.train()
        return trainer.losses, record.gradients, masks

    return run


@pytest.mark.parametrize("keys", [["algorithm.kl_coef=0.1"], ["algorithm.entropy_coef=0.01"], []])
def test_losses_and_gradients_are_those_of_the_padded_passes(train, keys):
    losses, gradients, padded = train(Padded, *keys)
    found_losses, found_gradients, trimmed = train(Trimmed, *keys)
    # A row's rotary angles begin at its first column: only rounding differs.
    assert len(losses) == 8
    assert found_losses == pytest.approx(losses, abs=1e-6, rel=1e-6)
    assert len(gradients) == 4
    for found, gradient in zip(found_gradients, gradients, strict=True):
        assert torch.linalg.norm(found - gradient) <= 1e-5 * torch.linalg.norm(gradient)
    assert sum(mask.numel() for mask in trimmed) < sum(mask.numel() for mask in padded)
    assert sum(int(mask.sum()) for mask in trimmed) == sum(int(mask.sum()) for mask in padded)


def test_no_column_of_a_pass_is_padding_in_all_rows(train):
    _, _, masks = train(Trimmed)
    assert masks and all(mask.any(dim=0).all() for mask in masks)


@pytest.mark.parametrize(
    "rows, kept, left, right",
    [
        ([[0, 1, 1, 0], [0, 0, 1, 0]], 2, 1, 1),
        ([[1, 1, 1, 1]], 2, 0, 0),
        ([[0, 1, 0, 0], [1, 1, 0, 0]], 2, 0, 1),  # a completion that is not trained on
        ([[0, 0, 1, 1]], 2, 2, 0),
        ([[1, 0, 1, 1]], 3, 0, 0),  # inside of a row nothing is left out
    ],
)
def test_what_is_padding(rows, kept, left, right):
    assert padding(torch.tensor(rows), kept) == (left, right)
