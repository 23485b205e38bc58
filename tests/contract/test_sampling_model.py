"""What the engine of each trainer samples with: the model without dropout, every stop token."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from transformers import AutoModelForCausalLM

from gem_core.runs.recipe.load import load_recipe
from gem_core.training.tiny import model_path

DROPOUT = '''
import importlib.abc
import importlib.util
import sys

MODULE = "transformers.models.qwen3.modeling_qwen3"


class Finder(importlib.abc.MetaPathFinder):
    """Gives the tiny model dropout when its module is imported."""

    def find_spec(self, name, path, target=None):
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def load_and_change(module):
            load(module)
            change(module.Qwen3Model)

        spec.loader.exec_module = load_and_change
        return spec


def change(model):
    init = model.__init__

    def with_dropout(self, *args, **kwargs):
        init(self, *args, **kwargs)
        self.norm.register_forward_hook(drop)

    model.__init__ = with_dropout


def drop(norm, inputs, output):
    import torch

    return torch.nn.functional.dropout(output, 0.9, norm.training)


sys.meta_path.insert(0, Finder())
'''


def stop_token(folder):
    """A token that the policy samples in the middle of many actions: the first digit."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder).encode("1", add_special_tokens=False)[-1]


@pytest.fixture
def model(tmp_path):
    """The tiny model with a second stop token in its generation configuration."""
    start = model_path(load_recipe("guess-the-number-easy", "tiny"))
    folder = tmp_path / "model"
    shutil.copytree(start, folder)
    path = folder / "generation_config.json"
    settings = json.loads(path.read_text()) if path.exists() else {}
    first = json.loads((folder / "config.json").read_text())["eos_token_id"]
    settings["eos_token_id"] = [first, stop_token(folder)]
    path.write_text(json.dumps(settings))
    return folder


def spans(run, split):
    """Prompt, sampled tokens and their log-probabilities of every action."""
    for tags, episode in run.episodes():
        if tags["split"] == split:
            for segment in episode.segments:
                for _, start, end in segment.spans:
                    ids = segment.token_ids
                    yield ids[:start], ids[start:end], segment.logprobs[start:end]


@pytest.mark.slow("openrlhf", "rl2", "verl")
def test_evaluations_have_no_dropout_and_actions_end_at_every_stop_token(
    train, model, package_path, monkeypatch
):
    package_path("sitecustomize", DROPOUT)
    keys = ("train.steps=1", "eval.every=1", "eval.inside_episodes=6", "train.log_episodes=8")
    status, output, run = train("run", f'model.path="{model}"', *keys)
    assert status == 0, output[-4000:]
    assert_every_stop_token_ends_an_action(run, stop_token(model))
    assert_sampled_without_dropout(run)


def assert_every_stop_token_ends_an_action(run, second):
    actions = [ids for split in ("train", "eval") for _, ids, _ in spans(run, split)]
    assert any(ids[-1] == second for ids in actions), "no action has the second stop token"
    beyond = [ids for ids in actions if second in ids[:-1]]
    assert not beyond, f"stop token {second} did not reach the engine: it went on in {beyond[:3]}"


def assert_sampled_without_dropout(run):
    """The log-probabilities are those of the trained model in evaluation mode."""
    trained = AutoModelForCausalLM.from_pretrained(run.model).eval()
    temperature = run.recipe.sampling.temperature
    worst = 0.0
    for prompt, ids, logprobs in spans(run, "eval"):
        with torch.no_grad():
            logits = trained(input_ids=torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 :]
        expected = torch.log_softmax(logits[:-1].double() / temperature, -1)
        chosen = expected.gather(1, torch.tensor(ids)[:, None])[:, 0]
        worst = max(worst, float((chosen - torch.tensor(logprobs).double()).abs().max()))
    assert 0 < worst < 1e-4, (
        f"the evaluation's log-probabilities differ from the model's without dropout by {worst:.2g}"
    )
