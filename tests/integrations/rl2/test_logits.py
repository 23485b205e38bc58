"""The bytes of a logit that the adapter declares are those that RL2's loss needs at its peak."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from RL2.utils.functions import aggregate_values
from RL2.workers.actor import Actor
from torch.distributed.device_mesh import init_device_mesh

from gem_rl2 import TRAINER

TOKENS, HIDDEN, VOCABULARY = 256, 8, 16384


@pytest.fixture
def mesh(tmp_path):
    """A group of this process alone."""
    mine = not dist.is_initialized()
    if mine:
        store = f"file://{tmp_path / 'store'}"
        dist.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    if mine:
        dist.destroy_process_group()


def test_bytes_of_a_logit(mesh, peak):
    hidden = torch.randn(1, TOKENS, HIDDEN, dtype=torch.bfloat16)
    head = torch.nn.Linear(HIDDEN, VOCABULARY, bias=False, dtype=torch.bfloat16)
    actor = SimpleNamespace(
        model=lambda **_: SimpleNamespace(logits=head(hidden)),
        config=SimpleNamespace(temperature=1.0),
        device_mesh={"tp": mesh, "sp": mesh, "dp": mesh},
    )
    batch = {
        "states": torch.zeros(1, TOKENS, dtype=torch.long),
        "actions": torch.randint(0, VOCABULARY, (1, TOKENS)),
        "position_ids": torch.arange(TOKENS)[None],
        "action_mask": torch.ones(1, TOKENS, dtype=torch.long),
    }
    forward = Actor.forward.__wrapped__  # without the division of sequences among GPUs

    def update():
        logps, entropy = forward(actor, batch, return_entropy=True)
        losses = -torch.exp(logps - logps.detach())
        loss, entropy = aggregate_values(
            (losses, entropy), batch["action_mask"], "token", TOKENS, 1
        )
        (loss - 0.0 * entropy).backward()  # as `Actor.update`: the entropy is always in the graph

    update()
    assert peak(update) / TOKENS / VOCABULARY == pytest.approx(
        TRAINER.memory.bytes_per_logit, abs=0.5
    )
