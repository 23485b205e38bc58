"""One process: episodes, advantages, two updates by verl's FSDP2 engine, weights sent back."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
import torch
from transformers import AutoModelForCausalLM

from gem_adapters.versions import VERSION
from gem_core.errors import GemError
from gem_verl.cpu import engine
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
    assert server.engines.version == 7


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


def test_a_server_that_sleeps_is_not_asked(model_dir):
    ask = partial(HFServer.generate, request_id="1", prompt_ids=[1, 2])
    params = {"max_tokens": 1, "seed": 0, "temperature": 1.0}
    server = HFServer(model_dir)
    weights = {name: tensor.clone() for name, tensor in server.model.state_dict().items()}

    async def play():
        """Two rollouts as verl plays them, and what is wrong in between."""
        await ask(server, sampling_params=params)
        await server.sleep()
        with pytest.raises(GemError, match="while its weights and kv_cache slept"):
            await ask(server, sampling_params=params)
        with pytest.raises(GemError, match="got weights while it slept"):
            await server.load_weights(weights, 1)
        await server.wake_up(["weights"])
        await server.load_weights(weights, 1)
        with pytest.raises(GemError, match="while its kv_cache slept"):
            await ask(server, sampling_params=params)
        await server.wake_up(["kv_cache"])
        await ask(server, sampling_params=params)
        await server.load_weights(weights, 2)
        with pytest.raises(GemError, match="cache is of weights before"):
            await ask(server, sampling_params=params)
        await server.clear_kv_cache()
        await ask(server, sampling_params=params)

    asyncio.run(play())


def test_a_server_samples_with_the_weights_that_are_asked_for(model_dir, monkeypatch):
    monkeypatch.setattr(engine, "count_kept_versions", lambda: 1)
    server = HFServer(model_dir)
    other = {name: tensor * 1.5 for name, tensor in server.model.state_dict().items()}

    async def play():
        """What three versions report of the same draw, then of one that is gone."""
        asked = partial(server.generate, "1", [1, 2])
        params = {"max_tokens": 3, "seed": 0, "temperature": 1.0, "logprobs": True}
        first = await asked(params)
        await server.load_weights(other, 1)
        await server.clear_kv_cache()
        newest, old = await asked(params), await asked({**params, VERSION: 0})
        assert old.log_probs == first.log_probs != newest.log_probs
        answers = (first, newest, old)
        assert [answer.extra_fields["global_steps"] for answer in answers] == [0, 1, 0]
        await server.load_weights(other, 2)
        await server.clear_kv_cache()
        with pytest.raises(GemError, match=r"those of the steps \[1, 2\]"):
            await asked({**params, VERSION: 0})

    asyncio.run(play())


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
