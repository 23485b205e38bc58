"""OpenRLHF's own actor and critic in this process: forward passes, loss, DeepSpeed steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gem_core.advantages import TurnBatch, gae, value_targets
from gem_core.episodes.data import StopReason
from gem_core.parity.frozen import frozen_episodes
from gem_core.parity.measure import measure
from gem_core.parity.reference import reference, token_weights
from gem_core.parity.replay import expected_rows
from gem_openrlhf.cpu.in_process import InProcess
from gem_openrlhf.cpu.replay import replay

BATCH = (
    "batch.episodes=16",
    "batch.group_size=2",
    "algorithm.epochs=1",
    "algorithm.lr_schedule=constant",
)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    """A random two-layer model over the frozen batch's vocabulary."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 16}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    ids = {"vocab_size": 258, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None}
    config = Qwen3Config(**sizes, **heads, **ids, max_position_embeddings=512)
    path = tmp_path_factory.mktemp("model")
    Qwen3ForCausalLM(config).save_pretrained(path)
    return str(path)


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
    algorithm, done = recipe.algorithm, 0
    total = recipe.train.steps * algorithm.epochs
    optimizer = torch.optim.AdamW(model.parameters(), betas=algorithm.betas, weight_decay=0.0)
    clipped = []
    for episodes in batches:
        rows = expected_rows(recipe, episodes)
        weights = [torch.from_numpy(w[1:]).float() for w in token_weights(recipe, rows)]
        old = None
        for _ in range(algorithm.epochs):
            logits = [model(input_ids=torch.tensor([r.token_ids])).logits[0, :-1] for r in rows]
            logp = [
                torch.log_softmax(x, -1).gather(1, torch.tensor(r.token_ids)[1:, None])[:, 0]
                for x, r in zip(logits, rows, strict=True)
            ]
            old = old or [x.detach() for x in logp]
            loss = 0.0
            for now, before, row, weight in zip(logp, old, rows, weights, strict=True):
                a = torch.from_numpy(row.advantages[1:]).float()
                ratio = torch.exp(now - before)
                bounded = ratio.clamp(1 - algorithm.clip_low, 1 + algorithm.clip_high)
                loss = loss - (torch.minimum(ratio * a, bounded * a) * weight).sum()
                clipped.append(bool(((bounded * a < ratio * a) & (weight > 0)).any()))
            cosine = 0.5 * (1 + np.cos(np.pi * done / total))
            optimizer.param_groups[0]["lr"] = algorithm.lr * cosine
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), algorithm.max_grad_norm)
            optimizer.step()
            done += 1
    assert any(clipped), "the clip was never active: the test says nothing about it"
    return dict(model.named_parameters())


def test_whole_steps_leave_the_weights_of_plain_torch(tiny, model_dir):
    """Not only the first gradient: ratios, clip, AdamW, gradient norm and learning rate."""
    overrides = ("train.steps=2", "algorithm.lr=0.01", "algorithm.max_grad_norm=0.05")
    overrides += ("algorithm.epochs=4",)
    recipe = tiny("batch.episodes=16", "batch.group_size=2", "batch.micro_batch=4", *overrides)
    assert recipe.algorithm.lr_schedule == "cosine"
    batches = [frozen_episodes(16, group_size=2, seed=seed) for seed in (0, 1)]
    trainer = InProcess(recipe, model_dir)
    for episodes in batches:
        status = trainer.train(trainer.experiences(episodes))
    assert status["actor_grad_norm"] > 0.05 and status["ppo_clip_ratio"] > 0
    wanted = plain_training(recipe, model_dir, batches)
    found = dict(trainer.actor.actor.model.module.named_parameters())
    start = dict(InProcess(recipe, model_dir).actor.actor.model.module.named_parameters())
    moved = max(float((start[n] - wanted[n]).detach().abs().max()) for n in wanted)
    apart = max(float((found[n] - wanted[n]).detach().abs().max()) for n in wanted)
    assert moved > 0.02 and apart < 1e-3 * moved, (moved, apart)


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
        (found,) = trainer.steps
        gradients.append(np.concatenate([found[name].ravel() for name in sorted(found)]))
    np.testing.assert_allclose(gradients[0], gradients[1], atol=1e-6)


def test_bfloat16_is_close_but_not_equal(tiny, model_dir):
    """What the released dtype costs: the direction holds to about 1e-3, the rows stay exact."""
    from transformers import AutoModelForCausalLM

    recipe = tiny(*BATCH, "model.dtype=bfloat16")
    found = replay(recipe, frozen_episodes(16, group_size=2), model_dir)
    model = AutoModelForCausalLM.from_pretrained(model_dir).float()
    rows = expected_rows(recipe, frozen_episodes(16, group_size=2))
    result = measure(found, reference(recipe, rows, model))
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
        found = trainer.critic.forward(
            torch.tensor([[*ids, 0]]), all_tokens, torch.ones(1, len(ids) + 1, dtype=torch.long)
        )[0]
        starts = [start for _, _, start, _ in episode.spans()]
        end = float(found[-1]) if episode.index in states else 0.0
        values[episode.index] = ([float(found[s - 1]) for s in starts], end)
    (experience,) = trainer.experiences(episodes, states=states)
    for row, episode in enumerate(episodes):
        if episode.index not in values:
            assert not experience.advantages[row].any()
            continue
        at, end = values[episode.index]
        turns = TurnBatch.from_episodes([episode.rewards], values=[at], bootstraps=[end])
        wanted = gae(turns, gamma=0.9, lam=0.8)
        targets = value_targets(wanted, np.array(at))
        for (_, _, start, stop), a, target in zip(episode.spans(), wanted, targets, strict=True):
            part = slice(start - 1, stop - 1)
            np.testing.assert_allclose(experience.advantages[row][part], a, atol=1e-5)
            np.testing.assert_allclose(experience.returns[row][part], target, atol=1e-5)
    status = trainer.train([experience])
    assert status["critic_loss"] > 0 and trainer.critic.critic.global_steps == 1


@pytest.mark.parametrize("where", ["loss", "reward"])
def test_kl_against_the_initial_model(tiny, model_dir, where):
    recipe = tiny(*BATCH, "algorithm.kl_coef=0.5", f"algorithm.kl_in={where}", "algorithm.lr=0.05")
    trainer = InProcess(recipe, model_dir)
    found = []
    for _ in range(2):
        episodes = frozen_episodes(16, group_size=2)
        found.append(trainer.train(trainer.experiences(episodes))["kl"])
    assert found[0] == pytest.approx(0.0, abs=1e-6)  # the policy is still the initial model
    assert abs(found[1]) > 1e-4
