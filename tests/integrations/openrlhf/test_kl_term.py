"""OpenRLHF's KL term, far from the initial model, is the one that its traits declare."""

from __future__ import annotations

import pytest
import torch
from openrlhf.models.utils import compute_approx_kl

from gem_parity.reference_loss import kl_term
from gem_replays.openrlhf import TRAITS

DIFFERENCES = [-30.0, -4.0, -2.5, -1.0, 0.0, 1.0, 9.0, 12.0]
"""Log-probability of the policy minus that of the initial model."""


def test_the_estimate_and_its_gradient_are_those_declared():
    policy = torch.tensor(DIFFERENCES, requires_grad=True)
    initial = torch.zeros(len(DIFFERENCES))
    declared = kl_term(TRAITS, policy, initial)
    (expected,) = torch.autograd.grad(declared.sum(), policy)
    estimate = compute_approx_kl(policy, initial, kl_estimator="k3")
    (gradient,) = torch.autograd.grad(estimate.sum(), policy)
    assert estimate.tolist() == pytest.approx(declared.tolist(), rel=1e-5, abs=1e-6)
    assert gradient.tolist() == pytest.approx(expected.tolist(), rel=1e-5, abs=1e-6)
    assert max(estimate.tolist()) == 10.0
