"""Executor -> Experience -> our estimator, by OpenRLHF's own code, against gem_core."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from openrlhf.trainer.ppo_utils import experience_maker
from openrlhf.trainer.ppo_utils.experience import make_experience_batch, split_experience_batch
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator
from vllm import SamplingParams

from gem_core.advantages import register_estimator
from gem_core.errors import GemError
from gem_openrlhf.advantages import GemExperienceMaker, require_installed
from gem_openrlhf.config import flags, render
from gem_openrlhf.cpu.parse import parse
from gem_openrlhf.rollout import GemAgentExecutor, to_native
from gem_parity.frozen import frozen_episodes
from gem_parity.replay import turn_advantages

BATCH = ("batch.episodes=16", "batch.group_size=2")


def namespace(recipe):
    return parse([*render(flags(recipe)), "--train.agent_func_path", "x.py"])


def make(recipe, cls=GemExperienceMaker):
    no_models = [None, None, None, None]
    kl_controller = SimpleNamespace(value=recipe.algorithm.kl_coef)
    strategy = SimpleNamespace(args=namespace(recipe))
    tokenizer = SimpleNamespace(pad_token_id=0)
    arguments = [*no_models, kl_controller, strategy, tokenizer]
    if cls is GemExperienceMaker:
        return cls(recipe, *arguments)
    return cls(*arguments)


def convert(responses):
    generator = SamplesGenerator.__new__(SamplesGenerator)
    return [generator._process_response_into_experience(r, max_len=512) for r in responses]


def forwarded(maker, samples):
    """What make_experience_batch does, with the model's forward pass left out."""

    def make_experience(batches):
        for batch in batches:
            mask = batch.action_mask
            batch.kl = torch.ones_like(mask, dtype=torch.float32) * mask
            batch.info["kl"] = batch.kl.sum(-1) / mask.sum(-1)  # 0/0 without action tokens
            batch.info["logprobs_diff"] = batch.info["kl"].clone()
        return batches

    maker.make_experience = make_experience
    return maker.make_experience_batch(samples)


def per_turn(experiences, episodes):
    """The advantage of each action, checked to be constant on its tokens and 0 elsewhere."""
    rows = []
    for experience in experiences:
        rows += zip(experience.advantages, experience.sequences, strict=True)
    advantages_per_turn = []
    for episode, (advantages, sequence) in zip(episodes, rows, strict=True):
        elsewhere = advantages.clone()
        turns = []
        for _, _, start, end in episode.spans():
            part = advantages[start - 1 : end - 1]
            assert (part == part[0]).all()
            turns.append(float(part[0]))
            elsewhere[start - 1 : end - 1] = 0
            ids = episode.segments[0].token_ids
            assert sequence[start:end].tolist() == ids[start:end]
        assert not elsewhere.any()
        advantages_per_turn.append(turns)
    return advantages_per_turn


def assert_equal_per_turn(actual, expected):
    for ours, theirs in zip(actual, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def advantages_of(recipe, episodes):
    """Frozen episodes through the adapter: one advantage per turn."""
    samples = convert(to_native(episode) for episode in episodes)
    return per_turn(forwarded(make(recipe), samples), episodes)


@pytest.mark.parametrize("micro", [16, 4, 1])
@pytest.mark.parametrize("estimator", ["rebn", "reinforce", "grpo", "dr_grpo", "rloo"])
def test_advantages_are_gem_cores(tiny, estimator, micro):
    recipe = tiny(f"algorithm.estimator={estimator}", *BATCH, f"batch.micro_batch={micro}")
    episodes = frozen_episodes(16, group_size=2)
    samples = convert([to_native(e) for e in reversed(episodes)])  # answers come in any order
    actual = per_turn(forwarded(make(recipe), samples), episodes)
    assert_equal_per_turn(actual, turn_advantages(recipe, episodes))


def test_played_episodes_reach_the_estimator(tiny, engine, tokenizer):
    recipe = tiny(*BATCH)
    executor = GemAgentExecutor(recipe)

    async def step():
        return [
            await executor.execute("p", f"train/{k}", SamplingParams(), 512, tokenizer, engine)
            for k in range(0, 16, 2)
            for _ in range(2)
        ]

    responses = asyncio.run(step())
    episodes = [response["label"][0] for response in responses]
    maker = make(recipe)
    actual = per_turn(forwarded(maker, convert(responses)), episodes)
    assert_equal_per_turn(actual, turn_advantages(recipe, episodes))
    assert maker.metrics["advantage/std"] == pytest.approx(1.0)


def test_gamma_does_not_decay_over_environment_tokens(tiny):
    """Stock OpenRLHF discounts per token, over observations too."""
    recipe = tiny("algorithm.estimator=reinforce", "algorithm.gamma=0.5", *BATCH)
    episodes = frozen_episodes(16, group_size=2)
    for episode, actual in zip(episodes, advantages_of(recipe, episodes), strict=True):
        if episode.stop_reason.failed:
            continue
        discounted = 0.0
        expected = []
        for reward in reversed(episode.rewards):
            discounted = reward + 0.5 * discounted
            expected.insert(0, discounted)
        np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_a_registered_estimator_works(tiny):
    @register_estimator("openrlhf-test-constant")
    def constant(batch, *, gamma, lam, reduce, level=2.0):
        return np.full(len(batch), level)

    recipe = tiny(
        "algorithm.estimator=openrlhf-test-constant", "algorithm.options.level=3.0", *BATCH
    )
    episodes = frozen_episodes(16, group_size=2)
    levels = set()
    for episode, turns in zip(episodes, advantages_of(recipe, episodes), strict=True):
        if not episode.stop_reason.failed:
            levels.update(turns)
    assert levels == {3.0}


def test_the_kl_penalty_goes_into_the_reward_of_its_turn(tiny):
    recipe = tiny(
        "algorithm.estimator=reinforce",
        "algorithm.gamma=0.0",
        "algorithm.kl_coef=0.5",
        "algorithm.kl_in=reward",
        *BATCH,
    )
    episodes = frozen_episodes(16, group_size=2)
    for episode, actual in zip(episodes, advantages_of(recipe, episodes), strict=True):
        if not episode.stop_reason.failed:
            lengths = [end - start for _, _, start, end in episode.spans()]
            pairs = zip(episode.rewards, lengths, strict=True)  # the KL above is 1 per token
            expected = [reward - 0.5 * length for reward, length in pairs]
            np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_infos_are_one_number_per_episode(tiny):
    """A list in ``extra_logs`` would reach the update step, which cannot take it."""
    episodes = frozen_episodes(16, group_size=2)
    experiences = forwarded(make(tiny(*BATCH)), convert(map(to_native, episodes)))
    for experience in experiences:
        for name, value in experience.info.items():
            assert value.shape == (len(experience.sequences),), name
            assert torch.isfinite(value.float()).all(), name  # excluded episodes included
        items = split_experience_batch(experience)
        for value in make_experience_batch(items).info.values():
            torch.tensor(value, dtype=torch.float)
        assert all(isinstance(label, str) for label in experience.labels)


def test_list_valued_logs_would_break_the_update(tiny):
    responses = [{**to_native(e), "extra_logs": {"turns": [1.0, 2.0]}} for e in frozen_episodes(4)]
    maker = make(tiny("batch.episodes=4"), RemoteExperienceMaker)
    (experience,) = maker.split_rollout_samples(convert(responses))
    value = make_experience_batch(split_experience_batch(experience)).info["turns"]
    with pytest.raises(ValueError, match=r"only one element|scalar"):
        torch.tensor(value, dtype=torch.float)


def test_response_length_counts_action_tokens(tiny):
    episodes = frozen_episodes(16, group_size=2)
    (experience,) = forwarded(make(tiny(*BATCH)), convert(map(to_native, episodes)))
    expected = [sum(sum(s.loss_mask) for s in e.segments) for e in episodes]
    assert experience.response_length.tolist() == expected


def test_the_stock_experience_maker_cannot_train_on_our_samples(tiny, monkeypatch):
    """A patch in the driver does not arrive in the Ray worker; that must not pass unnoticed."""
    samples = convert(map(to_native, frozen_episodes(16, group_size=2)))
    stock = make(tiny(*BATCH), RemoteExperienceMaker)
    monkeypatch.setattr(experience_maker, "ray", SimpleNamespace(put=list))
    with pytest.raises(ValueError, match="reward_model_group is required"):
        stock.make_experience_batch(samples)


def test_the_trainer_checks_itself(tiny):
    recipe = tiny(*BATCH)
    require_installed(SimpleNamespace(experience_maker=make(recipe)), recipe)
    stock = SimpleNamespace(experience_maker=make(recipe, RemoteExperienceMaker))
    with pytest.raises(GemError, match="Nothing was trained"):
        require_installed(stock, recipe)
    with pytest.raises(GemError, match="Nothing was trained"):
        require_installed(SimpleNamespace(experience_maker=make(tiny())), recipe)


@pytest.mark.parametrize("fault", ["missing", "twice", "other step"])
def test_a_step_with_other_tasks_is_refused(tiny, fault):
    episodes = frozen_episodes(16, group_size=2)
    if fault == "missing":
        episodes.pop()
    elif fault == "twice":
        episodes[3] = episodes[4]
    else:
        for episode in episodes:
            episode.index += 8
    samples = convert(map(to_native, episodes))
    with pytest.raises(GemError, match="dropped, repeated or reordered"):
        forwarded(make(tiny(*BATCH)), samples)


def test_a_batch_that_mostly_failed_is_refused(tiny):
    from gem_core.episodes.data import StopReason

    episodes = frozen_episodes(16, group_size=2)
    for episode in episodes[:12]:
        episode.stop_reason = StopReason.ENV_ERROR
    with pytest.raises(GemError, match="episodes failed"):
        forwarded(make(tiny(*BATCH)), convert(map(to_native, episodes)))


def test_a_truncated_sequence_is_refused(tiny):
    generator = SamplesGenerator.__new__(SamplesGenerator)
    samples = [
        generator._process_response_into_experience(to_native(e), max_len=20)
        for e in frozen_episodes(16, group_size=2)
    ]
    with pytest.raises(GemError, match="truncated"):
        forwarded(make(tiny(*BATCH)), samples)
