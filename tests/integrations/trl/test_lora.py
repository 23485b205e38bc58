"""LoRA: only the adapters are trained, and the exported model has them merged."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from gem_core.policies.models.weights import missing_weights
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.resolved import resolve_run
from gem_core.training.tiny import model_path
from gem_trl import launch
from gem_trl.trainer import GemTrainer

LORA = ("model.lora.rank=4", "model.lora.alpha=8", "algorithm.lr=0.01")
LORA += ("algorithm.estimator=reinforce",)  # an untrained model fails: all returns are equal


def logprobs(model, ids):
    with torch.no_grad():
        return model(input_ids=ids).logits.log_softmax(-1)


@pytest.fixture
def prompt(make_recipe):
    tokenizer = AutoTokenizer.from_pretrained(model_path(make_recipe()))
    return torch.tensor([tokenizer.encode("a guess between 1 and 50")])


def test_an_export_without_a_step_is_the_start_model(make_trainer, make_recipe, tmp_path):
    trainer = make_trainer(*LORA)
    trainer.save_model(str(tmp_path / "model"))
    start = AutoModelForCausalLM.from_pretrained(model_path(make_recipe())).state_dict()
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "model").state_dict()
    assert start.keys() == exported.keys()
    assert all(torch.equal(start[name], exported[name]) for name in start)


def test_the_reloaded_export_computes_what_the_trainer_does(make_trainer, tmp_path, prompt):
    trainer = make_trainer(*LORA, "model.lora.targets=['q_proj', 'down_proj']")
    trainer.train()
    trainer.save_model(str(tmp_path / "model"))
    trained = {name for name, weight in trainer.model.named_parameters() if weight.requires_grad}
    assert trained and all("lora_" in name for name in trained)
    assert all("q_proj" in name or "down_proj" in name for name in trained)
    model = trainer.accelerator.unwrap_model(trainer.model).eval()
    own = logprobs(model, prompt)
    with model.disable_adapter():
        before = logprobs(model, prompt)
    assert not missing_weights(str(tmp_path / "model"))
    reloaded = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    torch.testing.assert_close(logprobs(reloaded, prompt), own, atol=1e-5, rtol=0)
    assert (own - before).abs().max() > 1e-3, "training changed nothing: the test shows nothing"


def test_a_stopped_run_continues_its_adapters(make_recipe, tmp_path):
    keys = ["train.steps=2", "train.save_every=1", "algorithm.lr_schedule=constant"]
    recipe = make_recipe(*LORA, *keys)
    whole = RunDir.create(tmp_path / "whole", recipe, "trl")
    launch.run(resolve_run(recipe, "trl"), whole)
    part = RunDir.create(tmp_path / "part", recipe, "trl")
    source = model_path(recipe)
    tokenizer = AutoTokenizer.from_pretrained(source)
    trainer = GemTrainer.from_recipe(recipe, source, tokenizer, part.checkpoints)
    trainer.args.max_steps = 1
    trainer.train()
    launch.run(resolve_run(recipe, "trl"), part, resume=True)
    expected = load_file(whole.model / "model.safetensors")
    start = AutoModelForCausalLM.from_pretrained(source).state_dict()
    assert any(not torch.equal(start[name], expected[name]) for name in expected)
    resumed = load_file(part.model / "model.safetensors")
    assert all(torch.equal(resumed[name], expected[name]) for name in expected)
