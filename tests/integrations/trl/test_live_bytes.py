"""``benchmarks/gpu_memory/live.py`` counts, without data, the bytes of the real tensors."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from torch._subclasses import FakeTensorMode

LIVE = Path(__file__).resolve().parents[3] / "benchmarks" / "gpu_memory" / "live.py"


@pytest.fixture(scope="module")
def live():
    """The module that counts."""
    spec = importlib.util.spec_from_file_location("gpu_memory_live", LIVE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def update(rows):
    """An update of a small model: forward and backward pass, clipping, AdamW."""
    layers = [torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1024)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    for _ in range(2):
        logits = model(torch.ones(rows, 256))
        torch.log_softmax(logits, -1)[:, 0].sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("rows", [64, 2048])
def test_the_peak_is_that_of_the_real_update(live, peak, rows):
    update(rows)  # what PyTorch makes once
    real = peak(lambda: update(rows))
    with FakeTensorMode(), live.LiveBytes() as counted:
        update(rows)
    assert counted.peak == pytest.approx(real, rel=0.02)


def test_what_lives_is_told_by_kind_and_freed(live):
    with FakeTensorMode(), live.LiveBytes() as counted:
        kept = torch.empty(1000, dtype=torch.float64)
        counted.label("kept", [kept])
        torch.empty(500, dtype=torch.float64)
        assert (counted.now, counted.peak) == (8000, 12000)
        assert counted.kinds == {"kept": 8000, "made": 4000}
        counted.reset()
        assert counted.peak == 8000


def test_tensors_on_meta_have_no_bytes(live):
    with FakeTensorMode(), live.LiveBytes() as counted:
        kept = torch.zeros(1000, device="meta")
        like = torch.zeros_like(torch.zeros(500, dtype=torch.float64), device="meta")
        assert (kept.numel() + like.numel(), counted.now, counted.peak) == (1500, 0, 4000)


def test_storages_that_shrink_and_grow_again_are_followed(live):
    with FakeTensorMode(), live.LiveBytes() as counted:
        shard = torch.empty(1000, dtype=torch.float64)
        shard.untyped_storage().resize_(0)
        assert counted.now == 0
        shard.untyped_storage().resize_(16000)
        assert (counted.now, counted.peak) == (16000, 16000)


def test_a_number_read_from_a_tensor_is_true_zero_or_one(live):
    with FakeTensorMode(), live.LiveBytes():
        assert bool(torch.ones(3, dtype=torch.bool).all()) is True
        assert int(torch.ones(3, dtype=torch.long).sum()) == 0
        assert float(torch.zeros(3).sum()) == 1.0
