"""A warm start and a step of a Gemma 3 with random weights: sliding attention, its own layers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
import transformers

from gem_core.policies.models.files import ORIGIN, TOKENIZER
from gem_core.runs.generation_config import GENERATION
from gem_core.runs.recipe.load import load_recipe
from gem_core.training.tiny import model_path

WINDOW = 8 if hasattr(transformers.Gemma3TextConfig(), "layer_types") else 512
"""Oat's transformers 4.51 fails in training where a sequence is longer than the window."""
ESTIMATOR = "algorithm.estimator=reinforce"
"""Not centred: the answers of random weights all have the same reward."""


@pytest.fixture(scope="module")
def gemma(tmp_path_factory):
    """A folder of a two-layer Gemma 3 with the tiny model's tokenizer."""
    folder = tmp_path_factory.mktemp("gemma")
    tiny = Path(model_path(load_recipe("guess-the-number-easy", "tiny")))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny)
    torch.manual_seed(0)
    config = transformers.Gemma3TextConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        query_pre_attn_scalar=16,
        sliding_window=WINDOW,
        layer_types=["sliding_attention", "full_attention"],
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    transformers.Gemma3ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)  # as Gemma is
    for name in TOKENIZER:
        if (tiny / name).exists():
            shutil.copyfile(tiny / name, folder / name)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["eos_token"] = "<|im_start|>"  # as in a base model, no turn of the template ends so
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / GENERATION).write_text('{"eos_token_id": 1, "do_sample": true}')
    (folder / ORIGIN).write_text('{"model": "random"}')
    return folder


@pytest.mark.slow("openrlhf", "verl")
def test_gemma_gets_a_warm_start_and_a_step(gemma, train):
    start = ("model.warm_start.steps=1", "model.warm_start.batch=2")
    code, output, run = train("gemma", f"model.path={gemma}", "train.steps=1", ESTIMATOR, *start)
    assert code == 0, output[-4000:]
    (row,) = run.metrics()
    assert row["grad_norm"] > 0
    assert row["rollout/logprob_difference"] < 1e-5  # the window is the same in engine and update
    info = json.loads((run.path / "run.json").read_text())
    assert info["model_origin"] == json.loads((run.model / ORIGIN).read_text())
    trained = transformers.AutoModelForCausalLM.from_pretrained(run.model)
    assert type(trained).__name__ == "Gemma3ForCausalLM"
    # What serves it stops where its turns ended, and samples as the first model's settings say.
    wanted = {"eos_token_id": [1, 2], "do_sample": True}
    assert json.loads((run.model / GENERATION).read_text()) == wanted


@pytest.mark.slow("openrlhf", "verl")
def test_engine_and_update_load_the_file_in_the_same_precision(gemma, train):
    """The file is in bfloat16, the recipe's precision float32: neither rounds on the way."""
    code, output, run = train("as-it-is", f"model.path={gemma}", "train.steps=1", ESTIMATOR)
    assert code == 0, output[-4000:]
    assert run.metrics()[0]["rollout/logprob_difference"] < 1e-5
