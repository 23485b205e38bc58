"""One process trains on one GPU, however many its machine has."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.integrations import accelerate as placement
from trl.trainer import utils as loading

from gem_core.errors import RecipeError
from gem_core.runs.recipe.load import load_recipe
from gem_core.training.tiny import model_path
from gem_trl.config import native_config, translate

GPU = ["hardware.device=gpu", "hardware.engine=hf", "model.dtype=float32"]
COUNTS = [1, 2, 8]


@pytest.fixture
def machine(monkeypatch):
    """``machine(count)``: torch and accelerate see that many GPUs, with room for half a model."""

    def see(count, size=0):
        room = {gpu: max(1, size // 2) for gpu in range(count)} | {"cpu": 10 * size}
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(placement, "get_max_memory", lambda given=None: given or dict(room))
        state = SimpleNamespace(device=torch.device("cuda"))
        monkeypatch.setattr(loading, "PartialState", lambda: state)

    return see


def devices(arguments, source, monkeypatch):
    """Where transformers puts the modules of a model that TRL loads with these arguments."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(source))
    given = {}
    monkeypatch.setattr(type(model), "from_pretrained", lambda path, **kwargs: given.update(kwargs))
    loading.create_model_from_path(source, **arguments)
    asked = placement.check_and_set_device_map(given["device_map"])
    places = placement._get_device_map(model, asked, None, None)
    return {
        torch.device("cuda", place) if isinstance(place, int) else place
        for place in places.values()
    }


def model_bytes(source):
    """The size of the model's weights in float32."""
    model = AutoModelForCausalLM.from_pretrained(source)
    return 4 * sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize("count", COUNTS)
def test_the_model_is_on_one_gpu(make_recipe, machine, monkeypatch, count):
    source = str(model_path(make_recipe()))
    machine(count, model_bytes(source))
    arguments = translate(make_recipe(*GPU))["model_init_kwargs"]
    assert devices(arguments, source, monkeypatch) == {torch.device("cuda", 0)}


@pytest.mark.parametrize("count", COUNTS[1:])
def test_trl_alone_would_divide_it(make_recipe, machine, monkeypatch, count):
    source = str(model_path(make_recipe()))
    machine(count, model_bytes(source))
    arguments = translate(make_recipe(*GPU))["model_init_kwargs"]
    del arguments["device_map"]
    assert len(devices(arguments, source, monkeypatch)) > 1


@pytest.mark.parametrize("count", COUNTS)
def test_transformers_trains_on_one_gpu(make_recipe, machine, tmp_path, count):
    machine(count)
    config = native_config(make_recipe(*GPU), [1], tmp_path)
    assert config.n_gpu == 1  # with more the trainer multiplies the batch, and TRL refuses
    assert config.train_batch_size == config.per_device_train_batch_size


def test_on_a_cpu_there_is_no_map(make_recipe):
    assert translate(make_recipe())["model_init_kwargs"]["device_map"] is None


def test_it_is_no_free_key():
    recipe = load_recipe(
        "guess-the-number-easy", "paper", ["trainer.trl.model_init_kwargs.device_map=auto"]
    )
    with pytest.raises(RecipeError, match=r"device_map.*hardware\.device"):
        translate(recipe)
