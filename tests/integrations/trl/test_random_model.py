"""``benchmarks/gpu/random_model.py``: a folder that transformers loads, with Qwen3's vocabulary."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

FILE = Path(__file__).resolve().parents[3] / "benchmarks" / "gpu" / "random_model.py"
SMALL = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "head_dim": 8}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The module, and the folder of a model with few weights that it wrote."""
    spec = importlib.util.spec_from_file_location("random_model", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder = tmp_path_factory.mktemp("model")
    module.write_model(folder, {**module.SIZES, **SMALL})
    return module, folder


def test_every_token_that_can_be_sampled_has_a_logit_and_a_text(made):
    module, folder = made
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert model.dtype == torch.bfloat16
    logits = model(input_ids=torch.tensor([[5, 6]])).logits
    assert logits.shape == (1, 2, module.SIZES["vocab_size"])
    assert len(tokenizer) == max(module.SPECIAL) + 1
    assert tokenizer.decode([40_000]) == "w40000" and tokenizer.decode([151_900]) == ""


def test_a_text_is_bytes_and_qwens_special_tokens(made):
    module, folder = made
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = "<|im_start|>user\né \\boxed{7}<|im_end|>"
    ids = tokenizer(text).input_ids
    assert tokenizer.decode(ids) == text
    special = [number for number in ids if number in module.SPECIAL]
    assert [module.SPECIAL[number] for number in special] == ["<|im_start|>", "<|im_end|>"]
    assert all(number < 256 for number in ids if number not in module.SPECIAL)
    assert tokenizer.eos_token == "<|im_end|>" and tokenizer.pad_token == "<|endoftext|>"
