"""The bytes of a logit that the adapter declares are those that OpenRLHF's loss needs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from openrlhf.models import actor as actors

from gem_openrlhf import TRAINER

TOKENS, HIDDEN, VOCABULARY = 256, 8, 16384
KERNEL = Path(__file__).resolve().parents[3] / "benchmarks" / "gpu_memory" / "logits.py"


class Output(dict):
    """What transformers returns: entries that are attributes, too."""

    __getattr__ = dict.__getitem__


@pytest.fixture
def kernel(monkeypatch):
    """Flash-attn's cross-entropy, which the adapter asks for on a GPU: what it keeps and makes."""
    spec = importlib.util.spec_from_file_location("gpu_memory_logits", KERNEL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("flash_attn.ops", "flash_attn.ops.triton", "flash_attn.ops.triton.cross_entropy"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules[name].cross_entropy_loss = lambda logits, labels: (
        -module.kernel_logprobs(logits, labels, False),
        None,
    )


@pytest.mark.parametrize("bonus", [False, True])
def test_bytes_of_a_logit(monkeypatch, peak, kernel, bonus):
    # On a GPU it is compiled; here its operations run one by one.
    eager = getattr(actors.compute_entropy, "_torchdynamo_orig_callable", actors.compute_entropy)
    monkeypatch.setattr(actors, "compute_entropy", eager)
    hidden = torch.randn(1, TOKENS, HIDDEN, dtype=torch.bfloat16)
    head = torch.nn.Linear(HIDDEN, VOCABULARY, bias=False, dtype=torch.bfloat16)
    model = SimpleNamespace(
        model=lambda *_, **__: Output(logits=head(hidden)), packing_samples=False, temperature=1.0
    )
    ids = torch.randint(0, VOCABULARY, (1, TOKENS))
    mask = torch.ones(1, TOKENS, dtype=torch.long)

    def update():
        logps, output = actors.Actor.forward(
            model, ids, mask[:, 1:], mask, return_output=True, return_entropy=True
        )
        loss = -torch.exp(logps - logps.detach()).mean()
        if bonus:  # as `ActorPPOTrainer.training_step`
            loss = loss - 0.01 * output.entropy.mean()
        loss.backward()

    update()
    memory = TRAINER.memory
    declared = memory.bytes_with_entropy if bonus else memory.bytes_per_logit
    assert peak(update) / TOKENS / VOCABULARY == pytest.approx(declared, abs=0.5)
