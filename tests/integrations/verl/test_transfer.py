"""verl's transfer of weights in buckets, from a trained policy to two engines, by digests.

verl's own sender and receiver, with shared memory in the place of CUDA's, which verl has for
devices without handles; `benchmarks/engines` receives into a real vLLM.
"""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from threading import Thread

import pytest
import torch
import verl
from transformers import AutoModelForCausalLM

from gem_verl.cpu.local import LocalActor

from ...weight_hashes import hashes

LORA = ("model.lora.rank=4", "model.lora.alpha=8")
FOLDER = Path(verl.__file__).parent / "workers" / "rollout" / "vllm_rollout"


@pytest.fixture(scope="module")
def transfer():
    """verl's module; its package imports vLLM, which it does not need itself."""
    spec = importlib.util.spec_from_file_location(
        "bucketed_weight_transfer", FOLDER / "bucketed_weight_transfer.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Engine:
    """A model that takes buckets."""

    def __init__(self, model_dir, lost=None):
        self.model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
        self.lost = lost
        self.buckets = []

    def take(self, weights, is_last):
        """As vLLM's worker: what it gets is a view of the bucket, so it is copied."""
        self.buckets.append((len(weights), is_last))
        for name, weight in weights:
            if name != self.lost:
                with torch.no_grad():
                    self.model.get_parameter(name).copy_(weight)

    def hashes(self):
        return hashes(self.model.named_parameters())


def send(transfer, weights, engine, socket):
    """Send ``weights`` in buckets of the size of the largest of them."""
    handle = f"ipc://{socket}"
    receiver = transfer.BucketedWeightReceiver(handle, torch.device("cpu"), use_shm=True)
    thread = Thread(target=receiver.receive_weights, args=(engine.take,))
    sender = transfer.BucketedWeightSender(handle, use_shm=True)
    sender.bucket_size = max(tensor.nbytes for tensor in weights.values())
    thread.start()
    asyncio.run(sender.async_send_weights(iter(weights.items())))
    thread.join(60)
    assert not thread.is_alive()


@pytest.fixture
def trained(tiny, play_task, sample_from, model_dir):
    """``trained(*overrides)``: the weights that verl sends after an update."""

    def update(*overrides):
        recipe = tiny("batch.episodes=6", "algorithm.lr=0.01", *overrides)
        samples = [
            sample
            for index in range(6)
            for sample in play_task(recipe, sample_from(seed=index), index)[0]
        ]
        actor = LocalActor(recipe, model_dir)
        actor.update(actor.prepare(samples))
        return actor.weights()

    return update


@pytest.mark.parametrize("adapters", [(), LORA], ids=["whole", "adapters"])
def test_two_engines_have_every_tensor(transfer, trained, model_dir, tmp_path, adapters):
    weights = trained(*adapters)
    engines = [Engine(model_dir), Engine(model_dir)]
    first = engines[0].hashes()
    for number, engine in enumerate(engines):
        send(transfer, weights, engine, tmp_path / f"socket-{number}")
    expected = first | {name: value for name, value in hashes(weights.items()).items()
                        if name in first}  # fmt: skip
    changed = {name for name in first if first[name] != expected[name]}
    assert len(changed) > (10 if adapters else len(first) - 2)
    for engine in engines:
        assert len(engine.buckets) > 3 and [last for _, last in engine.buckets[-2:]] == [
            False,
            True,
        ]
        assert engine.hashes() == expected


def test_a_tensor_that_is_lost_shows(transfer, trained, model_dir, tmp_path):
    weights = trained()
    name = "model.layers.0.mlp.down_proj.weight"
    whole, broken = Engine(model_dir), Engine(model_dir, lost=name)
    for number, engine in enumerate((whole, broken)):
        send(transfer, weights, engine, tmp_path / f"socket-{number}")
    there = broken.hashes()
    assert {key for key, value in whole.hashes().items() if value != there[key]} == {name}
