"""A warm start's batches are where the model is, and its GPU memory is given back."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from msgspec.structs import replace
from torch.fx.experimental import _config as meta_settings
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gem_core.episodes.data import Segment
from gem_core.errors import GemError
from gem_core.runs.recipe.load import load_recipe
from gem_core.training.warm_start.clone import action_loss
from gem_core.training.warm_start.device import on_recipes_device

SEGMENTS = [Segment([1, 2, 3, 4], loss_mask=[0, 0, 1, 1]), Segment([1, 2, 3], loss_mask=[0, 1, 1])]


class Bigram(torch.nn.Module):
    """The least that behaves like a causal language model of transformers."""

    def __init__(self):
        super().__init__()
        self.config = SimpleNamespace()
        self.embedding = torch.nn.Embedding(8, 4)
        self.head = torch.nn.Linear(4, 8)

    @property
    def device(self):
        return self.head.weight.device

    def base_model(self, input_ids, use_cache):
        return SimpleNamespace(last_hidden_state=self.embedding(input_ids))

    def get_output_embeddings(self):
        return self.head


class Mixed(TorchDispatchMode):
    """Notes every operation on tensors of two devices; of the copies between them, none."""

    def __init__(self):
        super().__init__()
        self.operations = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        if len({tensor.device for tensor in tensors}) > 1:
            self.operations.append(str(operation))
        return operation(*args, **(kwargs or {}))


def test_every_operation_is_on_the_models_device(monkeypatch):
    monkeypatch.setattr(meta_settings, "meta_nonzero_assume_all_nonzero", True)
    with Mixed() as mixed:
        loss = action_loss(Bigram().to("meta"), SEGMENTS)
    assert loss.device == torch.device("meta")
    assert mixed.operations == []


class Calls(list):
    """A model and a GPU that note what is asked of them."""

    def to(self, device):
        self.append(f"to {device}")

    def gradient_checkpointing_enable(self, settings):
        self.append(f"recompute {settings}")

    def gradient_checkpointing_disable(self):
        self.append("keep activations")


@pytest.fixture
def calls(monkeypatch):
    noted = Calls()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: noted.append("empty cache"))
    return noted


def recipe(device, *, recomputes=True):
    """The tiny profile on a device."""
    tiny = load_recipe("guess-the-number-easy", "tiny")
    return replace(
        tiny,
        hardware=replace(tiny.hardware, device=device),
        model=replace(tiny.model, gradient_checkpointing=recomputes),
    )


def test_a_gpu_is_left_as_it_was(calls):
    with on_recipes_device(recipe("gpu"), calls) as name:
        calls.append("train")
    assert name == "a GPU"
    assert calls == [
        "empty cache",
        "to cuda",
        "recompute {'use_reentrant': False}",
        "train",
        "keep activations",
        "to cpu",
        "empty cache",
    ]


def test_activations_are_kept_where_training_keeps_them(calls):
    with on_recipes_device(recipe("gpu", recomputes=False), calls):
        pass
    assert calls == ["empty cache", "to cuda", "to cpu", "empty cache"]


def test_a_gpu_without_room_says_what_to_do(calls):
    with (
        pytest.raises(GemError, match=r"lower model\.warm_start\.batch"),
        on_recipes_device(recipe("gpu"), calls),
    ):
        raise torch.cuda.OutOfMemoryError
    assert calls[-2:] == ["to cpu", "empty cache"]


def test_a_recipe_for_a_cpu_stays_there(calls):
    with on_recipes_device(recipe("cpu"), calls) as name:
        assert name == "cpu"
    assert calls == []


def test_without_a_gpu_here_it_stays_on_the_cpu(calls, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with on_recipes_device(recipe("gpu"), calls) as name:
        assert name == "cpu"
    assert calls == []
