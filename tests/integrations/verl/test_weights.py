"""Weights in and out of verl's workers: LoRA, bounded forward passes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM
from verl.workers.utils.padding import response_from_nested

from gem_core.training.tiny import model_source
from gem_replays.verl import _gradients
from gem_verl.cpu.local import LocalActor

LORA = ("model.lora.rank=4", "model.lora.alpha=8", "algorithm.lr=0.05")

ONE_UPDATE = ("algorithm.epochs=1", "algorithm.minibatches=1", "limits.max_context_tokens=128")


@pytest.fixture(scope="module")
def episodes():
    """Number of episodes of a batch, enough for several forward passes of 128 tokens."""
    return 6


@pytest.fixture
def samples(tiny, episodes, play_task, sample_from):
    """The first step's episodes, played by verl's agent loop with the model itself."""
    recipe = tiny(f"batch.episodes={episodes}")
    return [
        sample
        for index in range(episodes)
        for sample in play_task(recipe, sample_from(seed=index), index)[0]
    ]


def exported(actor, folder):
    """The model that verl's checkpoint has, and its weights."""
    actor.engine.save_checkpoint(str(folder))
    model = AutoModelForCausalLM.from_pretrained(folder / "huggingface", dtype=torch.float32)
    return model, model.state_dict()


def logprobs(model, batch):
    """Log-probabilities of the trained tokens by transformers."""
    numbers = []
    for prompt, ids, mask in zip(
        batch["prompts"].unbind(),
        batch["input_ids"].unbind(),
        batch["response_mask"].unbind(),
        strict=True,
    ):
        logits = model(ids[None]).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        numbers.append(logits.gather(-1, ids[len(prompt) :, None])[:, 0][mask.bool()])
    return torch.cat(numbers)


@pytest.mark.parametrize("targets", [(), ("q_proj", "v_proj")], ids=["all", "two"])
def test_adapters_are_trained_and_leave_merged(tiny, samples, model_dir, tmp_path, targets):
    keys = [f"model.lora.targets={list(targets)}"] if targets else []
    actor = LocalActor(tiny(*LORA, *keys), model_dir)
    adapted = {name.split(".")[-4] for name, _ in actor.engine.module.named_parameters()
               if ".lora_A." in name}  # fmt: skip
    first = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).state_dict()
    _, start = exported(actor, tmp_path / "start")
    assert start.keys() == first.keys()
    assert all(torch.equal(start[name], first[name]) for name in first)

    batch = actor.prepare(samples)
    for _ in range(3):
        actor.update(batch)
    sent = actor.weights()
    model, last = exported(actor, tmp_path / "last")
    changed = {name for name in first if not torch.equal(first[name], last[name])}
    assert changed and {name.split(".")[-2] for name in changed} == adapted
    assert set(targets) in (set(), adapted) and "lm_head" not in adapted
    assert all(torch.equal(sent[name], last[name]) for name in sent)

    mask = batch["response_mask"]
    trained = response_from_nested(actor._log_probs(batch), mask).values()[mask.values().bool()]
    with torch.no_grad():
        reloaded = logprobs(model, batch)
        before = batch["old_log_probs"].values()[mask.values().bool()]
    assert (trained - reloaded).abs().max() < 1e-5
    assert (trained - before).abs().max() > 1e-2


@pytest.mark.parametrize("aggregation", ["token", "sequence"])
def test_a_bound_on_tokens_leaves_the_gradient(tiny, samples, model_dir, aggregation):
    norms, gradients, passes = [], [], []
    for bound in ("batch.micro_batch=1", "batch.max_tokens_per_device=128"):
        recipe = tiny(bound, *ONE_UPDATE, f"algorithm.loss_aggregation={aggregation}")
        actor = LocalActor(recipe, model_dir)
        batch = actor.prepare(samples)
        gradient, sizes = {}, []
        step, forward = actor.engine.optimizer_step, actor.engine.forward_step

        def captured(actor=actor, gradient=gradient, step=step):
            gradient.update(_gradients(actor.engine.module))
            return step()

        def counted(data, *args, forward=forward, sizes=sizes, **options):
            sizes.append(int(data["input_ids"].offsets()[-1]))
            return forward(data, *args, **options)

        actor.engine.optimizer_step = captured
        actor.engine.forward_step = counted
        norms.append(float(np.sum(actor.update(batch)["grad_norm"])))
        gradients.append(gradient)
        passes.append(sizes)
    assert len(passes[0]) == len(samples) > len(passes[1]) > 1
    assert max(passes[1]) <= 128 < sum(passes[1]) == sum(passes[0])
    assert norms[1] == pytest.approx(norms[0], rel=1e-6)
    for name, expected in gradients[0].items():
        np.testing.assert_allclose(gradients[1][name], expected, atol=1e-6)


def test_a_revision_is_what_verl_loads(tiny, tmp_path, monkeypatch):
    from huggingface_hub import constants

    hub = tmp_path / "models--org--tiny"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    for number, revision in enumerate(("main", "v2")):
        commit = str(number) * 40
        snapshot = hub / "snapshots" / commit
        snapshot.mkdir(parents=True)
        (snapshot / "config.json").write_text("{}")
        (hub / "refs").mkdir(exist_ok=True)
        (hub / "refs" / revision).write_text(commit)
    recipe = tiny("model.path=org/tiny", "model.revision=v2")
    monkeypatch.setattr("huggingface_hub._snapshot_download.constants", constants)
    assert model_source(recipe) == str(hub / "snapshots" / ("1" * 40))
    assert model_source(tiny("model.path=org/tiny")) == "org/tiny"
    assert model_source(tiny(f"model.path={tmp_path}")) == str(tmp_path)
