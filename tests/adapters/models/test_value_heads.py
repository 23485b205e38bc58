"""A critic's head begins at zero, without a bias."""

from __future__ import annotations

import pytest
import torch
import transformers

from gem_adapters.value_heads import start_at_zero
from gem_core.errors import GemError


def load(path, **settings):
    """A model as verl and RL2 make it."""
    model = transformers.AutoModelForTokenClassification.from_pretrained(path, **settings)
    return model.double().eval()


@pytest.fixture
def model(model_dir):
    """A critic whose head has a bias."""
    return load(str(model_dir), num_labels=1)


def test_all_values_are_zero_and_the_body_is_as_it_was(model):
    body = {name: weight.clone() for name, weight in model.model.named_parameters()}
    assert model.score.bias is not None and model.score.weight.any()
    start_at_zero(model)
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    assert torch.equal(model(input_ids=ids).logits, torch.zeros(1, 5, 1, dtype=torch.float64))
    assert [name for name, _ in model.named_parameters() if "score" in name] == ["score.weight"]
    assert model.score.weight.requires_grad
    for name, weight in model.model.named_parameters():
        assert torch.equal(weight, body[name])


def test_a_model_on_the_meta_device_stays_there(model):
    model.score = model.score.to("meta")
    start_at_zero(model)
    assert model.score.weight.is_meta and model.score.bias is None


def test_the_exported_critic_has_the_same_values(model, tmp_path):
    start_at_zero(model)
    torch.nn.init.normal_(model.score.weight)
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    expected = model(input_ids=ids).logits
    model.save_pretrained(tmp_path)
    loaded = load(tmp_path)(input_ids=ids).logits
    assert torch.allclose(loaded, expected, rtol=1e-5)


def test_a_model_without_such_a_head_is_named(model):
    with pytest.raises(GemError, match="ForTokenClassification, has no linear head 'v_head'"):
        start_at_zero(model, "v_head")
