"""OpenRLHF's transfer of weights by handles, as between a training process and an engine on a GPU.

OpenRLHF's own code sends (`PolicyModelActor.broadcast_to_vllm`) and receives
(`WorkerWrap.update_weight_cuda_ipc`). In the place of CUDA's memory is shared memory of the
machine: a handle has the places of torch's handle of a CUDA tensor, and goes through pickle.
"""

from __future__ import annotations

import pickle
from multiprocessing.shared_memory import SharedMemory
from types import SimpleNamespace

import openrlhf.trainer.ray.utils as ray_utils
import pytest
import torch
from openrlhf.trainer.ray import ppo_actor
from openrlhf.trainer.ray.vllm_worker_wrap import WorkerWrap
from transformers import AutoModelForCausalLM

from gem_openrlhf.cpu.in_process import InProcess
from gem_parity.frozen import frozen_episodes

from ...weight_hashes import hashes

BATCH = ("batch.episodes=16", "batch.group_size=2", "algorithm.lr=0.05", "train.steps=3")
GPU = "GPU-0"
INDEX = 3
"""Number of the GPU among those that an engine sees; the sender's own is another."""


class Handles:
    """Stands for CUDA's memory: makes handles of tensors, and opens them."""

    def __init__(self):
        self.blocks = []

    def reduce(self, tensor):
        """As ``torch.multiprocessing.reductions.reduce_tensor`` of a CUDA tensor."""
        block = SharedMemory(create=True, size=max(1, tensor.nbytes))
        self.blocks.append(block)
        block.buf[: tensor.nbytes] = tensor.contiguous().numpy().tobytes()
        shape, stride = tuple(tensor.shape), tensor.stride()
        return rebuild, (type(tensor), shape, stride, 0, None, tensor.dtype, 0, block.name)

    def close(self):
        """Free the memory."""
        for block in self.blocks:
            block.close()
            block.unlink()


def rebuild(kind, shape, stride, offset, storage, dtype, device, name):
    """As ``rebuild_cuda_tensor``."""
    assert device == INDEX, "the handle was opened on the sender's GPU"
    block = SharedMemory(name=name)
    count = torch.Size(shape).numel()
    tensor = torch.frombuffer(bytearray(block.buf), dtype=dtype, count=count).view(shape)
    block.close()
    return tensor


class Engine:
    """A vLLM worker with OpenRLHF's extension, behind a Ray handle whose calls are pickled."""

    def __init__(self, model_dir, lost=None):
        self.model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
        self.lost = lost
        self.received = []
        worker = WorkerWrap()
        worker.model_config = SimpleNamespace(dtype=torch.float32)
        worker.device = SimpleNamespace(index=INDEX)
        loads = SimpleNamespace(load_weights=self.load)
        worker.model_runner = SimpleNamespace(model=loads)
        self.worker = worker
        self.update_weight_cuda_ipc = SimpleNamespace(remote=self.call)

    def call(self, name, **given):
        given = pickle.loads(pickle.dumps(given))
        self.worker.update_weight_cuda_ipc(name, **given)

    def load(self, weights):
        for name, weight in weights:
            self.received.append(name)
            if name != self.lost:
                with torch.no_grad():
                    self.model.get_parameter(name).copy_(weight)


@pytest.fixture
def handles(monkeypatch):
    """Shared memory in the place of CUDA's, and plain calls in the place of Ray's."""
    made = Handles()
    monkeypatch.setattr(torch.multiprocessing.reductions, "reduce_tensor", made.reduce)
    for module in (ppo_actor, ray_utils):
        monkeypatch.setattr(module, "get_physical_gpu_id", lambda: GPU)
    monkeypatch.setattr(ppo_actor, "ray", SimpleNamespace(get=lambda refs: refs))
    yield made
    made.close()


def trained(recipe, model_dir):
    """A policy after an update, which sends by handles."""
    trainer = InProcess(recipe, model_dir)
    trainer.train(trainer.experiences(frozen_episodes(16, group_size=2)))
    trainer.actor.trainer.use_cuda_ipc = True
    return trainer


def exported(trainer, folder):
    """The model as OpenRLHF's actor writes it."""
    trainer.args.ckpt.output_dir = str(folder)
    trainer.actor.save_model()
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


@pytest.mark.parametrize("adapters", [(), ("model.lora.rank=4", "model.lora.alpha=8")])
def test_two_engines_have_every_tensor(tiny, model_dir, handles, tmp_path, adapters):
    trainer = trained(tiny(*BATCH, *adapters), model_dir)
    engines = [Engine(model_dir), Engine(model_dir)]
    first = hashes(engines[0].model.named_parameters())
    trainer.actor.trainer.vllm_engines = engines
    trainer.actor.broadcast_to_vllm()
    expected = hashes(exported(trainer, tmp_path / "model").named_parameters())
    changed = {name for name in expected if expected[name] != first[name]}
    assert len(changed) > (10 if adapters else len(expected) - 1)
    for engine in engines:
        assert sorted(engine.received) == sorted(expected)
        assert hashes(engine.model.named_parameters()) == expected


def test_a_tensor_that_is_lost_shows(tiny, model_dir, handles, tmp_path):
    trainer = trained(tiny(*BATCH), model_dir)
    name = "model.layers.0.mlp.down_proj.weight"
    whole, broken = Engine(model_dir), Engine(model_dir, lost=name)
    trainer.actor.trainer.vllm_engines = [whole, broken]
    trainer.actor.broadcast_to_vllm()
    sent, there = (hashes(engine.model.named_parameters()) for engine in (whole, broken))
    assert {key for key in sent if sent[key] != there[key]} == {name}
