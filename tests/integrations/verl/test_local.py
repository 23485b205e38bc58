"""One process: episodes, advantages, two updates by verl's FSDP2 engine, weights sent back."""

from __future__ import annotations

import asyncio

import pytest
import torch
from transformers import AutoModelForCausalLM

from gem_verl.cpu.engine import HFServer
from gem_verl.cpu.local import LocalActor


@pytest.fixture(scope="module")
def recipe(tiny):
    """Few episodes, a learning rate that moves something."""
    return tiny("batch.episodes=6", "algorithm.lr=1e-3")


@pytest.fixture
def samples(recipe, play_task, sample_from, model_dir):
    """The first step's episodes, played by verl's agent loop with the model itself."""
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    return [
        sample
        for index in range(recipe.batch.episodes)
        for sample in play_task(recipe, sample_from(model, seed=index), index)[0]
    ]


def test_episodes_to_update_to_weights(recipe, samples, model_dir):
    actor = LocalActor(recipe, model_dir)
    before = actor.weights()
    batch = actor.prepare(samples)

    mask = batch["response_mask"].values().bool()
    sampled = batch["rollout_log_probs"].values()
    trained = batch["old_log_probs"].values()
    assert (sampled - trained)[mask].abs().max() < 1e-5
    advantages = batch["advantages"].values()
    assert not advantages[~mask].any() and advantages[mask].any()

    first = actor.update(batch)
    second = actor.update(batch)
    assert float(torch.as_tensor(first["grad_norm"]).sum()) > 0
    losses = [float(torch.as_tensor(m["actor/pg_loss"]).sum()) for m in (first, second)]
    assert losses[1] < losses[0], "the second update of a batch starts from a lower loss"

    after = actor.weights()
    assert any(not torch.equal(after[name], before[name]) for name in after)
    server = HFServer(model_dir)
    asyncio.run(server.load_weights(after, 7))
    loaded = server.model.state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in after.items())
    assert server.version == 7


def test_the_cpu_backend_takes_log_probs_at_once():
    from verl.utils.torch_functional import logprobs_from_logits

    logits = torch.randn(7, 11, generator=torch.Generator().manual_seed(0), requires_grad=True)
    labels = torch.arange(7)
    logprobs = logprobs_from_logits(logits, labels)
    one_by_one = [logits[i, i] - torch.logsumexp(logits[i], -1) for i in range(7)]
    torch.testing.assert_close(logprobs, torch.stack(one_by_one))
    (gradient,) = torch.autograd.grad(logprobs.sum(), logits)
    torch.testing.assert_close(gradient, torch.eye(7, 11) - logits.softmax(-1))


def test_weights_that_do_not_fit_are_an_error(model_dir):
    server = HFServer(model_dir)
    with pytest.raises(RuntimeError, match="Weights do not fit"):
        asyncio.run(server.load_weights({"no.such.weight": torch.zeros(1)}, 0))


def test_padding_rows_of_verl_do_not_move_the_loss(recipe, samples, model_dir, monkeypatch):
    """The batch with verl's own padding rows gives the same loss and gradient norm."""
    from tensordict import TensorDict
    from verl.trainer.ppo.padding_utils import construct_minimal_padding_template

    plain = LocalActor(recipe, model_dir)
    batch = plain.prepare(samples)
    expected = plain.update(batch)

    source = {key: value[0] for key, value in batch.items()}
    padding, _ = construct_minimal_padding_template(source, {}, eos_token_id=2)
    padding |= {name: torch.zeros(1) for name in ("old_log_probs", "advantages", "returns")}
    rows = [{k: v[i] for k, v in batch.items()} for i in range(len(batch))] + [padding] * 2
    nested = {
        key: torch.nested.as_nested_tensor([row[key] for row in rows], layout=torch.jagged)
        for key in batch.keys()  # noqa: SIM118 - a TensorDict iterates over rows
    }
    padded = TensorDict(nested, batch_size=len(rows))
    metrics = LocalActor(recipe, model_dir).update(padded)
    for key in ("actor/pg_loss", "grad_norm"):
        assert torch.as_tensor(metrics[key]).sum() == pytest.approx(
            float(torch.as_tensor(expected[key]).sum()), rel=1e-4, abs=1e-6
        )
