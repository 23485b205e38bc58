"""The adapter under test, its configuration module and a small model to replay with."""

from __future__ import annotations

from importlib import import_module

import pytest

from gem_core.parity.frozen import frozen_episodes
from gem_core.training.recipe import load_recipe


@pytest.fixture(scope="session")
def package(trainer_name):
    """Import name of the adapter."""
    return f"gem_{trainer_name}"


@pytest.fixture(scope="session")
def config(package):
    """The adapter's ``config`` module."""
    return import_module(f"{package}.config")


@pytest.fixture
def tiny():
    """``tiny(*overrides)``: the tiny recipe of the first baseline."""
    return lambda *overrides: load_recipe("guess-the-number-easy", "tiny", overrides)


@pytest.fixture(scope="session")
def episodes():
    """The frozen batch, fresh for each use: ``episodes()``."""
    return lambda: frozen_episodes(16, group_size=2)


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory):
    """A random two-layer model over the frozen batch's vocabulary, Hugging Face format."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=258,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    path = tmp_path_factory.mktemp("model")
    Qwen3ForCausalLM(config).save_pretrained(path)
    return str(path)
