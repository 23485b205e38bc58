"""Small models with random weights: sampling is tested, not skill."""

from __future__ import annotations

import pytest
import torch
import transformers


def make_model(**changes):
    """A Qwen3 with two layers; the same weights in every version of transformers."""
    sizes = {
        "vocab_size": 300,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 16,
        "max_position_embeddings": 256,
        "tie_word_embeddings": True,
    }
    config = transformers.AutoConfig.for_model("qwen3", **(sizes | changes))
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for _, weight in sorted(model.named_parameters()):
            if weight.dim() > 1:
                weight.normal_(0.0, 0.15, generator=generator)
    return model


@pytest.fixture(scope="session")
def model():
    """The model; tests that change its weights make their own."""
    return make_model()


@pytest.fixture(scope="session")
def make():
    """``make(**sizes)``: a model of one's own."""
    return make_model
