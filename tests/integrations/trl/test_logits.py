"""The bytes of a logit that the adapter declares are those of its loss over the drawn tokens."""

from __future__ import annotations

import pytest
import torch

from gem_adapters.support import keep_mask
from gem_trl import TRAINER
from gem_trl.support import compute_restricted

TOKENS, HIDDEN, VOCABULARY = 256, 8, 16384


@pytest.mark.parametrize("bonus", [False, True])
def test_bytes_of_a_logit_over_the_drawn_tokens(peak, bonus):
    hidden = torch.randn(1, TOKENS, HIDDEN, dtype=torch.bfloat16)
    head = torch.nn.Linear(HIDDEN, VOCABULARY, bias=False, dtype=torch.bfloat16)
    ids = torch.randint(0, VOCABULARY, (1, TOKENS))
    sets = [[[int(token)] for token in ids[0]]]

    def update():
        logits = head(hidden) / 0.7
        keep = keep_mask(sets, TOKENS, VOCABULARY, "cpu")
        logprobs, entropy = compute_restricted(logits, ids, keep)
        loss = -torch.exp(logprobs - logprobs.detach()).mean()
        if bonus:
            loss = loss - 0.01 * entropy.mean()
        loss.backward()

    bytes_of_one = peak(update) / (TOKENS * VOCABULARY)
    assert bytes_of_one == pytest.approx(TRAINER.memory.bytes_with_support, rel=0.02)
