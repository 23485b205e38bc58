"""The bytes of a logit that the adapter declares are those that Oat's loss needs at its peak."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from oat.algorithms.ppo import PPOLearner

from gem_oat import TRAINER

TOKENS, HIDDEN, VOCABULARY = 257, 8, 16384


def test_bytes_of_a_logit_without_the_fused_head(peak):
    hidden = torch.randn(2, TOKENS, HIDDEN, dtype=torch.bfloat16)
    head = torch.nn.Linear(HIDDEN, VOCABULARY, bias=False, dtype=torch.bfloat16)
    learner = SimpleNamespace(args=SimpleNamespace(use_fused_lm_head=False))
    ids = torch.randint(0, VOCABULARY, (2, TOKENS))

    def update():
        logps, _ = PPOLearner.get_batch_logps(
            learner, lambda *_, **__: {"logits": head(hidden)}, ids, None, compute_entropy=True
        )
        (-torch.exp(logps - logps.detach()).mean()).backward()

    update()
    assert peak(update) / 2 / TOKENS / VOCABULARY == pytest.approx(
        TRAINER.memory.bytes_per_logit, abs=0.5
    )
