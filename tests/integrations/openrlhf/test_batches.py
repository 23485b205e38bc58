"""Forward passes without trained tokens, and forward passes that are filled by tokens."""

from __future__ import annotations

import numpy as np
import pytest

from gem_openrlhf.cpu.in_process import InProcess
from gem_openrlhf.dynamic import divide
from gem_parity.frozen import frozen_episodes

BATCH = (
    "batch.episodes=16",
    "batch.group_size=2",
    "algorithm.epochs=1",
    "algorithm.lr_schedule=constant",
    "algorithm.estimator=gae",
    "algorithm.kl_coef=0.1",
)
LIMIT = 160


def train(recipe, model_dir):
    """One update on the frozen episodes: the trainer, its status, tokens of each forward pass."""
    trainer = InProcess(recipe, model_dir)
    tokens = []
    step = trainer.actor.trainer.training_step

    def noted(experience, *args, **kwargs):
        tokens.append(int(experience.attention_mask.sum()))
        return step(experience, *args, **kwargs)

    trainer.actor.trainer.training_step = noted
    status = trainer.train(trainer.experiences(frozen_episodes(16, group_size=2)))
    return trainer, status, tokens


def flat(gradient):
    return np.concatenate([gradient[name].ravel() for name in sorted(gradient)])


@pytest.mark.parametrize("aggregation", ["token", "sequence"])
@pytest.mark.parametrize("correction", ["none", "tis"])
def test_a_minibatch_of_failed_episodes_has_the_gradient_zero(
    tiny, model_dir, aggregation, correction
):
    overrides = ("algorithm.minibatches=16", f"algorithm.loss_aggregation={aggregation}")
    recipe = tiny(*BATCH, *overrides, f"algorithm.rollout_correction={correction}")
    trainer, status, _ = train(recipe, model_dir)
    norms = [float(np.linalg.norm(flat(gradient))) for gradient in trainer.steps]
    failed = [e for e in frozen_episodes(16, group_size=2) if e.stop_reason.failed]
    assert len(norms) == 16 and norms.count(0.0) >= len(failed) > 0
    assert all(np.isfinite(value) for value in status.values()), status
    for model in (trainer.actor.actor.model.module, trainer.critic.critic.module):
        assert all(weight.isfinite().all() for weight in model.parameters())


@pytest.mark.parametrize("aggregation", ["token", "sequence"])
@pytest.mark.parametrize("sharding", ["optimizer", "full"])
def test_passes_filled_by_tokens_have_the_gradient_of_other_passes(
    tiny, model_dir, aggregation, sharding
):
    loss = (f"algorithm.loss_aggregation={aggregation}", "algorithm.entropy_coef=0.01")
    by_tokens = (f"batch.max_tokens_per_device={LIMIT}", f"limits.max_context_tokens={LIMIT}")
    plain, expected, _ = train(tiny(*BATCH, *loss, "batch.micro_batch=4"), model_dir)
    recipe = tiny(*BATCH, *loss, *by_tokens, f"hardware.sharding={sharding}")
    trainer, status, tokens = train(recipe, model_dir)
    assert len(tokens) > 2 and max(tokens) <= LIMIT
    (gradient,) = trainer.steps
    np.testing.assert_allclose(flat(gradient), flat(plain.steps[0]), atol=1e-6)
    assert np.linalg.norm(flat(gradient)) > 0.1
    for name in ("loss/policy", "loss/value", "grad_norm", "grad_norm/critic", "kl", "entropy"):
        assert status[f"gem/{name}"] == pytest.approx(expected[f"gem/{name}"], rel=1e-5, abs=1e-8)


def test_minibatches_of_passes_filled_by_tokens_are_as_many_updates(tiny, model_dir):
    overrides = (f"batch.max_tokens_per_device={LIMIT}", f"limits.max_context_tokens={LIMIT}")
    recipe = tiny(*BATCH, *overrides, "algorithm.minibatches=2", "algorithm.epochs=2")
    trainer, _, _ = train(recipe, model_dir)
    assert len(trainer.steps) == trainer.actor.actor.model.global_steps == 4
    assert trainer.critic.critic.global_steps == 4


def test_no_pass_has_more_tokens_than_allowed_and_each_rank_has_as_many():
    random = np.random.default_rng(0)
    evened = 0
    for number in range(500):
        lengths = random.integers(5, 200, 32).tolist()
        ranks = 1 + number % 4
        parts = divide(lengths, 256, ranks)
        assert sorted(place for part in parts for place in part) == list(range(32))
        assert max(sum(lengths[place] for place in part) for part in parts) <= 256
        assert len(parts) % ranks == 0
        evened += len(parts) > -(-sum(lengths) // 256)
    assert evened > 100  # so that the limit was not kept by chance


@pytest.mark.parametrize("sharding", ["optimizer", "full"])
@pytest.mark.parametrize("offload", ["none", "optimizer"])
def test_where_states_are_does_not_change_the_update(tiny, model_dir, sharding, offload):
    batch = (*BATCH, "batch.micro_batch=4")
    plain, expected, _ = train(tiny(*batch), model_dir)
    keys = (f"hardware.sharding={sharding}", f"hardware.offload={offload}")
    trainer, status, _ = train(tiny(*batch, *keys), model_dir)
    engine = trainer.actor.actor.model
    assert engine.zero_optimization_stage() == {"optimizer": 2, "full": 3}[sharding]
    states = engine.config["zero_optimization"]["offload_optimizer"]["device"]
    assert states == {"none": "none", "optimizer": "cpu"}[offload]
    np.testing.assert_allclose(flat(trainer.steps[0]), flat(plain.steps[0]), atol=1e-6)
    assert status["gem/grad_norm"] == pytest.approx(expected["gem/grad_norm"], rel=1e-6)


@pytest.mark.parametrize("sharding", ["optimizer", "full"])
def test_values_begin_at_zero_however_the_critic_is_divided(tiny, model_dir, sharding):
    trainer = InProcess(tiny(*BATCH, f"hardware.sharding={sharding}"), model_dir)
    weight = trainer.critic.critic.module.score.weight
    assert hasattr(weight, "ds_id") == (sharding == "full")
    episodes = frozen_episodes(16, group_size=2)
    (experience,) = trainer.experiences(episodes)
    assert not experience.values.any()
    trainer.train([experience])
    (experience,) = trainer.experiences(episodes)
    assert experience.values.any()
