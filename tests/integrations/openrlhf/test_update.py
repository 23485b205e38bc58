"""OpenRLHF's own actor and critic in this process: forward passes, loss, DeepSpeed steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gem_core.advantages import TurnBatch, gae, value_targets
from gem_core.episodes.data import StopReason
from gem_core.errors import GemError
from gem_core.runs.directory.run_dir import RunDir
from gem_openrlhf.cpu.in_process import InProcess
from gem_openrlhf.metrics import RunLog
from gem_parity.frozen import frozen_episodes
from gem_parity.measure import measure
from gem_parity.reference import reference, token_weights
from gem_parity.replay import expected_rows
from gem_replays.openrlhf import replay

BATCH = (
    "batch.episodes=16",
    "batch.group_size=2",
    "algorithm.epochs=1",
    "algorithm.lr_schedule=constant",
)


def weights(trainer):
    return [p.detach().clone() for p in trainer.actor.actor.model.module.parameters()]


def test_two_optimizer_steps_per_epoch(tiny, model_dir):
    recipe = tiny(*BATCH, "algorithm.minibatches=2", "batch.micro_batch=4", "algorithm.epochs=2")
    trainer = InProcess(recipe, model_dir)
    before = weights(trainer)
    status = trainer.train(trainer.experiences(frozen_episodes(16, group_size=2)))
    assert trainer.actor.actor.model.global_steps == len(trainer.steps) == 4
    assert any(not torch.equal(a, b) for a, b in zip(before, weights(trainer), strict=True))
    for name in ("policy_loss", "actor_grad_norm", "entropy_loss"):
        assert np.isfinite(status[name])
    assert status["actor_lr"] == recipe.algorithm.lr


def plain_training(recipe, model_dir, batches):
    """Two steps of the tiny profile without any trainer: PPO's loss, AdamW, clipping, cosine."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_dir).float()
    algorithm = recipe.algorithm
    optimizer = torch.optim.AdamW(model.parameters(), betas=algorithm.betas, weight_decay=0.0)
    total = recipe.train.steps * algorithm.epochs
    done = 0
    clipped = False
    for episodes in batches:
        rows = expected_rows(recipe, episodes)
        old = None
        for _ in range(algorithm.epochs):
            logprobs = [token_logprobs(model, row) for row in rows]
            old = old or [row.detach() for row in logprobs]
            loss, clip_active = ppo_loss(recipe, rows, logprobs, old)
            clipped = clipped or clip_active
            cosine = 0.5 * (1 + np.cos(np.pi * done / total))
            optimizer.param_groups[0]["lr"] = algorithm.lr * cosine
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), algorithm.max_grad_norm)
            optimizer.step()
            done += 1
    assert clipped, "the clip was never active: the test tells nothing about it"
    return dict(model.named_parameters())


def token_logprobs(model, row):
    ids = torch.tensor(row.token_ids)
    logits = model(input_ids=ids[None]).logits[0, :-1]
    return torch.log_softmax(logits, -1).gather(1, ids[1:, None])[:, 0]


def ppo_loss(recipe, rows, logprobs, old):
    """The clipped loss of the batch, and whether the clip cut any token's ratio."""
    algorithm = recipe.algorithm
    weights = token_weights(recipe, rows)
    loss = 0.0
    clipped = False
    for row, now, before, weight in zip(rows, logprobs, old, weights, strict=True):
        weight = torch.from_numpy(weight[1:]).float()
        advantages = torch.from_numpy(row.advantages[1:]).float()
        ratio = torch.exp(now - before)
        bounded = ratio.clamp(1 - algorithm.clip_low, 1 + algorithm.clip_high)
        gain = torch.minimum(ratio * advantages, bounded * advantages)
        loss = loss - (gain * weight).sum()
        cut = (bounded * advantages < ratio * advantages) & (weight > 0)
        clipped = clipped or bool(cut.any())
    return loss, clipped


def test_whole_steps_leave_the_weights_of_plain_torch(tiny, model_dir):
    """Not only the first gradient: ratios, clip, AdamW, gradient norm and learning rate."""
    recipe = tiny(
        "batch.episodes=16",
        "batch.group_size=2",
        "batch.micro_batch=4",
        "train.steps=2",
        "algorithm.lr=0.01",
        "algorithm.max_grad_norm=0.05",
        "algorithm.epochs=4",
    )
    assert recipe.algorithm.lr_schedule == "cosine"
    batches = [frozen_episodes(16, group_size=2, seed=seed) for seed in (0, 1)]
    trainer = InProcess(recipe, model_dir)
    for episodes in batches:
        status = trainer.train(trainer.experiences(episodes))
    assert status["gem/grad_norm"] > 0.05 and status["gem/clip_ratio"] > 0
    expected = plain_training(recipe, model_dir, batches)
    actual = dict(trainer.actor.actor.model.module.named_parameters())
    initial = dict(InProcess(recipe, model_dir).actor.actor.model.module.named_parameters())
    moved = largest_difference(initial, expected)
    apart = largest_difference(actual, expected)
    assert moved > 0.02 and apart < 1e-3 * moved, (moved, apart)


def largest_difference(first, second):
    return max(float((first[name] - second[name]).detach().abs().max()) for name in second)


@pytest.mark.parametrize("model", ["actor", "critic"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_gradient_that_is_not_finite_stops_the_run(tiny, model_dir, tmp_path, dtype, model):
    """DeepSpeed makes the update in float32, skips it in bfloat16, and reports a finite norm."""
    recipe = tiny(*BATCH, f"model.dtype={dtype}", "algorithm.estimator=gae")
    trainer = InProcess(recipe, model_dir)
    episodes = frozen_episodes(16, group_size=2)
    engine = trainer.actor.actor.model if model == "actor" else trainer.critic.critic
    next(engine.module.parameters()).register_hook(lambda gradient: gradient * float("inf"))
    status = trainer.train(trainer.experiences(episodes))
    assert np.isfinite(status["policy_loss"]) and np.isfinite(status["critic_loss"])
    run_log = RunLog(RunDir.create(tmp_path / "run", recipe, "openrlhf"))
    name = "grad_norm" if model == "actor" else "grad_norm/critic"
    with pytest.raises(GemError, match=f"{name} is nan in step 1"):
        run_log.log_step(1, episodes, trainer.maker.metrics, status)


def test_the_recipe_decides_the_precision(tiny, model_dir):
    kinds = {}
    for dtype in ("float32", "bfloat16"):
        trainer = InProcess(tiny(*BATCH, f"model.dtype={dtype}"), model_dir)
        kinds[dtype] = {str(p.dtype) for p in trainer.actor.actor.model.module.parameters()}
    assert kinds == {"float32": {"torch.float32"}, "bfloat16": {"torch.bfloat16"}}


def test_accumulated_micro_batches_give_the_same_gradient(tiny, model_dir):
    """The loss is one mean over the optimizer step, not a mean of uneven micro-batch means."""
    gradients = []
    for micro in (16, 4):
        recipe = tiny(*BATCH, f"batch.micro_batch={micro}")
        trainer = InProcess(recipe, model_dir)
        trainer.train(trainer.experiences(frozen_episodes(16, group_size=2)))
        (gradient,) = trainer.steps
        gradients.append(np.concatenate([gradient[name].ravel() for name in sorted(gradient)]))
    np.testing.assert_allclose(gradients[0], gradients[1], atol=1e-6)


def test_bfloat16_is_close_but_not_equal(tiny, model_dir):
    """What the released dtype costs: the direction holds to about 1e-3, the rows stay exact."""
    from transformers import AutoModelForCausalLM

    recipe = tiny(*BATCH, "model.dtype=bfloat16")
    replayed = replay(recipe, frozen_episodes(16, group_size=2), model_dir)
    model = AutoModelForCausalLM.from_pretrained(model_dir).float()
    rows = expected_rows(recipe, frozen_episodes(16, group_size=2))
    result = measure(replayed, reference(recipe, rows, model))
    assert result.ids and result.advantage <= 1e-6
    assert result.cosine > 0.99 and abs(result.norm) < 0.05


def test_gae_reads_the_critic_at_turn_boundaries(tiny, model_dir):
    recipe = tiny(*BATCH, "algorithm.estimator=gae", "algorithm.gamma=0.9", "algorithm.lam=0.8")
    trainer = InProcess(recipe, model_dir)
    episodes = frozen_episodes(16, group_size=2)
    cut = [e for e in episodes if e.stop_reason.truncated]
    assert cut and {e.stop_reason for e in cut} > {StopReason.TRUNCATED_TURNS}
    states = {e.index: [*e.segments[0].token_ids, 5, 6, 7] for e in cut}
    values = {}
    for episode in (e for e in episodes if not e.stop_reason.failed):
        ids = states.get(episode.index, episode.segments[0].token_ids)
        all_tokens = torch.ones(1, len(ids), dtype=torch.long)
        token_values = trainer.critic.forward(
            torch.tensor([[*ids, 0]]), all_tokens, torch.ones(1, len(ids) + 1, dtype=torch.long)
        )[0]
        before_turns = [float(token_values[start - 1]) for _, _, start, _ in episode.spans()]
        bootstrap = float(token_values[-1]) if episode.index in states else 0.0
        values[episode.index] = (before_turns, bootstrap)
    (experience,) = trainer.experiences(episodes, states=states)
    for row, episode in enumerate(episodes):
        if episode.index not in values:
            assert not experience.advantages[row].any()
            continue
        before_turns, bootstrap = values[episode.index]
        turns = TurnBatch.from_episodes(
            [episode.rewards], values=[before_turns], bootstraps=[bootstrap]
        )
        expected = gae(turns, gamma=0.9, lam=0.8)
        targets = value_targets(expected, np.array(before_turns))
        per_turn = zip(episode.spans(), expected, targets, strict=True)
        for (_, _, start, stop), advantage, target in per_turn:
            tokens = slice(start - 1, stop - 1)
            np.testing.assert_allclose(experience.advantages[row][tokens], advantage, atol=1e-5)
            returns = experience.returns[row][tokens]
            np.testing.assert_allclose(returns[0], target, atol=1e-5)
            assert returns[1:].isnan().all()  # the critic is trained where it is read
    status = trainer.train([experience])
    assert status["critic_loss"] > 0 and trainer.critic.critic.global_steps == 1


@pytest.mark.parametrize("where", ["loss", "reward"])
def test_kl_against_the_initial_model(tiny, model_dir, where):
    recipe = tiny(*BATCH, "algorithm.kl_coef=0.5", f"algorithm.kl_in={where}", "algorithm.lr=0.05")
    trainer = InProcess(recipe, model_dir)
    divergences = []
    for _ in range(2):
        episodes = frozen_episodes(16, group_size=2)
        divergences.append(trainer.train(trainer.experiences(episodes))["kl"])
    assert divergences[0] == pytest.approx(0.0, abs=1e-6)  # still the initial model
    assert abs(divergences[1]) > 1e-4
