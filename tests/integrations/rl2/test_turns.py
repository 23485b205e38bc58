"""Turns out of RL2's tensors, and advantages back into them, against brute force."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
import torch
from RL2.datasets import pack_tensor_dicts
from RL2.datasets.rl import state_dict_to_tensor_dict

from gem_adapters.turn_batch import turn_batch
from gem_core.advantages import (
    TurnBatch,
    compute_advantages,
    estimator_needs,
    list_estimators,
    register_estimator,
)
from gem_core.errors import AdvantageError, GemError
from gem_parity.frozen import frozen_episodes
from gem_replays.rl2 import batch as pack
from gem_rl2.advantages import Advantages, require_installed

ESTIMATORS = [name for name in list_estimators() if name != "gae"]


def random_batch(rng, group_size=2):
    """Episodes as lists of sequences, each a list of turns (observation, action, reward)."""
    episodes = []
    for _ in range(group_size * rng.randint(1, 4)):
        sequences = [[]]
        for _ in range(rng.randint(1, 5)):
            if sequences[-1] and rng.random() < 0.3:
                sequences.append([])
            reward = rng.choice([0.0, round(rng.uniform(-2, 2), 3)])
            sequences[-1].append((rng.randint(1, 8), rng.randint(1, 5), reward))
        episodes.append(sequences)
    return episodes


def to_tensors(episodes, rng):
    """RL2's batch of them, through RL2's own functions; random ids, rewards on last tokens."""
    rows = []
    counts = [0]
    for sequences in episodes:
        counts.append(counts[-1] + len(sequences))
        for turns in sequences:
            mask = []
            rewards = []
            for observation, action, reward in turns:
                mask += [0] * observation + [1] * action
                rewards += [0.0] * (observation + action - 1) + [reward]
            ids = [rng.randrange(2, 50) for _ in mask]
            state = {"states": ids, "actions": ids, "action_mask": mask}
            state |= {"logps": [0.0] * len(ids), "rewards": rewards}
            rows.append(state_dict_to_tensor_dict(state))
    return pack_tensor_dicts(rows), torch.tensor(counts)


def expected(episodes, per_turn, shape):
    """Brute force: each turn's number on its action tokens, one position earlier than the token."""
    table = torch.zeros(shape)
    numbers = iter(per_turn)
    row = 0
    for sequences in episodes:
        for turns in sequences:
            at = 0
            for observation, action, _ in turns:
                at += observation
                number = next(numbers)
                for position in range(at, at + action):
                    table[row, position - 1] = number
                at += action
            row += 1
    return table


def of_turns(tensors):
    """The advantage of each turn, read where its mask begins."""
    mask = tensors["action_mask"]
    first = mask.bool() & ~torch.nn.functional.pad(mask, (1, 0))[:, :-1].bool()
    return tensors["advantages"][first].double().numpy()


def flat_turns(episodes):
    return [
        (number, reward)
        for number, sequences in enumerate(episodes)
        for *_, reward in itertools.chain(*sequences)
    ]


@pytest.fixture
def numbered():
    """An estimator that numbers the turns that it gets, from 1 on."""
    name = "rl2-test-numbered"

    @register_estimator(name)
    def estimator(batch, *, gamma, lam, reduce):
        return np.arange(1.0, len(batch) + 1)

    return name


def test_recovered_turns_are_those_that_were_laid_out(tiny, numbered):
    rng = random.Random(0)
    recipe = tiny(f"algorithm.estimator={numbered}")
    for _ in range(300):
        episodes = random_batch(rng)
        tensors, cu_seqs = to_tensors(episodes, rng)
        Advantages(recipe)(None, tensors, cu_seqs, 1)
        numbers = range(1, len(flat_turns(episodes)) + 1)
        assert torch.equal(
            tensors["advantages"], expected(episodes, numbers, tensors["advantages"].shape)
        )


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_estimators_on_random_batches(tiny, estimator):
    keys = ["batch.group_size=2", f"algorithm.estimator={estimator}"]
    if "gamma" not in estimator_needs(estimator).ignores:
        keys.append("algorithm.gamma=0.7")
    rng = random.Random(estimator)
    for _ in range(60):
        episodes = random_batch(rng)
        tensors, cu_seqs = to_tensors(episodes, rng)
        Advantages(tiny(*keys))(None, tensors, cu_seqs, 1)
        turns = flat_turns(episodes)
        batch = TurnBatch(
            rewards=np.array([reward for _, reward in turns]),
            episode=np.array([number for number, _ in turns]),
            group=np.array([number // 2 for number, _ in turns]),
        )
        per_turn = compute_advantages(estimator, batch, gamma=0.7)
        table = expected(episodes, per_turn, tensors["advantages"].shape)
        np.testing.assert_allclose(tensors["advantages"], table, rtol=0, atol=2e-6)


def test_gae_reads_the_critic_at_the_last_prompt_token(tiny):
    recipe = tiny("algorithm.estimator=gae", "algorithm.gamma=0.9", "algorithm.lam=0.8")
    rng = random.Random(1)
    for _ in range(60):
        episodes = random_batch(rng)
        tensors, cu_seqs = to_tensors(episodes, rng)
        tensors["values"] = torch.randn(tensors["rewards"].shape)
        Advantages(recipe)(None, tensors, cu_seqs, 1)
        expected_advantages = []
        expected_returns = []
        mask = torch.zeros(tensors["rewards"].shape)
        row = 0
        for sequences in episodes:
            values = []
            rewards = []
            for turns in sequences:
                at = 0
                for observation, action, reward in turns:
                    last_prompt_token = at + observation - 1
                    values.append(float(tensors["values"][row, last_prompt_token]))
                    mask[row, last_prompt_token] = 1
                    rewards.append(reward)
                    at += observation + action
                row += 1
            running = 0.0
            advantages = []
            for t in reversed(range(len(values))):
                after = values[t + 1] if t + 1 < len(values) else 0.0
                running = rewards[t] + 0.9 * after - values[t] + 0.9 * 0.8 * running
                advantages.append(running)
            advantages.reverse()
            expected_advantages += advantages
            expected_returns += [a + v for a, v in zip(advantages, values, strict=True)]
        for key, numbers in (
            ("advantages", expected_advantages),
            ("returns", expected_returns),
        ):
            table = expected(episodes, numbers, mask.shape)
            np.testing.assert_allclose(tensors[key], table, rtol=0, atol=1e-5)
        assert torch.equal(tensors["value_mask"], mask.to(tensors["value_mask"].dtype))


def test_whitened_gae_keeps_targets_that_are_not(tiny):
    rng = random.Random(2)
    tensors, cu_seqs = to_tensors(random_batch(rng), rng)
    tensors["values"] = torch.randn(tensors["rewards"].shape)
    plain = dict(tensors)
    whitened = dict(tensors)
    keys = ["algorithm.estimator=gae", "algorithm.options.whiten=true"]
    Advantages(tiny(keys[0]))(None, plain, cu_seqs, 1)
    Advantages(tiny(*keys))(None, whitened, cu_seqs, 1)
    assert torch.equal(plain["returns"], whitened["returns"])
    per_turn = of_turns(whitened)
    assert abs(per_turn.mean()) < 1e-6 and abs(per_turn.std() - 1) < 1e-6


def test_a_penalty_in_the_token_rewards_counts(tiny):
    rng = random.Random(3)
    tensors, cu_seqs = to_tensors([[[(2, 3, 1.0)]], [[(2, 2, 0.0)]]], rng)
    tensors["rewards"] -= 0.1 * tensors["action_mask"]
    Advantages(tiny("algorithm.estimator=reinforce"))(None, tensors, cu_seqs, 1)
    assert tensors["advantages"][0, 1:4].tolist() == pytest.approx([0.7] * 3)
    assert tensors["advantages"][1, 1:3].tolist() == pytest.approx([-0.2] * 2)


def test_frozen_episodes_with_options_per_environment(tiny):
    episodes = frozen_episodes(16)
    recipe = tiny("algorithm.options.per_env=true", "algorithm.gamma=0.9")
    tensors, cu_seqs = pack(episodes)
    Advantages(recipe, episodes)(None, tensors, cu_seqs, 1)
    flat = compute_advantages("rebn", turn_batch(episodes), gamma=0.9, per_env=True)
    kept = [n for n, t in enumerate(t for e in episodes for t in e.turns) if not t.aborted]
    np.testing.assert_allclose(of_turns(tensors), flat[kept], rtol=0, atol=1e-6)


def test_environments_that_are_not_known_cannot_be_told_apart(tiny):
    """The newer API loses the order of the episodes; nothing is normalised per guessed one."""
    episodes = frozen_episodes(4)
    tensors, cu_seqs = pack(episodes)
    advantages = Advantages(tiny("algorithm.options.per_env=true"), episodes)
    advantages.in_order = False
    with pytest.raises(AdvantageError, match="environment id of each turn"):
        advantages(None, tensors, cu_seqs, 1)


def test_an_estimator_of_a_third_party(tiny):
    @register_estimator("rl2-test-constant")
    def constant(batch, *, gamma, lam, reduce, size=1.0):
        return np.full(len(batch), size)

    rng = random.Random(4)
    tensors, cu_seqs = to_tensors(random_batch(rng), rng)
    keys = ["algorithm.estimator=rl2-test-constant", "algorithm.options.size=2.5"]
    Advantages(tiny(*keys))(None, tensors, cu_seqs, 1)
    assert torch.equal(tensors["advantages"], 2.5 * tensors["action_mask"])


def test_actions_with_nothing_between_are_an_error(tiny):
    episodes = frozen_episodes(2)
    tensors, cu_seqs = pack(episodes)
    (_, _, first_end), (_, second_start, _) = episodes[0].segments[0].spans[:2]
    tensors["action_mask"][0, first_end - 1 : second_start] = 1
    with pytest.raises(GemError, match="no token between them"):
        Advantages(tiny(), episodes)(None, tensors, cu_seqs, 1)


def test_the_estimator_must_be_where_the_loop_looks(tiny, process_group, monkeypatch):
    from RL2.trainer import ppo

    advantages = Advantages(tiny())
    with pytest.raises(GemError, match="its own advantages"):
        require_installed(ppo.PPOTrainer.train, advantages)
    monkeypatch.setattr(ppo, "compute_advantages", advantages)
    require_installed(ppo.PPOTrainer.train, advantages)
