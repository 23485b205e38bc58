"""gem-core's estimators inside verl: same numbers as the core on padded and shuffled batches."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl.protocol import DataProto
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, get_adv_estimator_fn
from verl.trainer.ppo.v1 import trainer_base

from gem_adapters.token_rows import RowLabel
from gem_core.advantages import (
    TurnBatch,
    compute_advantages,
    list_estimators,
    register_estimator,
    value_targets,
)
from gem_core.errors import GemError
from gem_verl.advantages import install, require_installed

GAMMA, LAM = 0.9, 0.8
CRITIC_FREE = [name for name in list_estimators() if name != "gae"]


def episodes(seed):
    """Ragged episodes: (group, env, [(action length, gap, reward, value)])."""
    rng = np.random.default_rng(seed)
    return [
        (
            number // 3,
            number % 2,
            [
                (int(rng.integers(1, 5)), int(rng.integers(1, 4)), rng.normal(), rng.normal())
                for _ in range(rng.integers(1, 6))
            ],
        )
        for number in range(12)
    ]


def rows_of(batch, per_turn):
    """verl rows: one per episode, or one per turn (history that rewrites itself)."""
    rows = []
    for number, (group, env, turns) in enumerate(batch):
        parts = [[turn] for turn in turns] if per_turn else [turns]
        for first, part in enumerate(parts):
            mask, rewards, values = [], [], []
            for length, gap, reward, value in part:
                mask += [1] * length + [0] * gap
                rewards += [0.0] * (length - 1) + [reward] + [0.0] * gap
                values += [value] + [9.0] * (length - 1 + gap)  # only the first is the turn's
            rows.append((RowLabel(number, first, group, env), mask, rewards, values))
    return rows


def as_data(rows, padding=3, seed=0):
    """verl's padded batch in random order, with its padding rows."""
    rows = [*rows, *[(None, [0], [0.0], [5.0])] * padding]
    order = np.random.default_rng(seed).permutation(len(rows))
    rows = [rows[i] for i in order]
    width = max(len(mask) for _, mask, _, _ in rows)

    def table(column):
        return torch.tensor([row[column] + [0] * (width - len(row[column])) for row in rows])

    fields = {
        "response_mask": table(1),
        "token_level_rewards": table(2).float(),
        "values": table(3).float(),
    }
    data = DataProto(batch=TensorDict(fields, batch_size=len(rows)))
    uids = [f"pad{i}" if row[0] is None else row[0].encode() for i, row in enumerate(rows)]
    data.non_tensor_batch["uid"] = np.array(uids, dtype=object)
    return rows, data


def as_float32(number):
    """What is left of a number in verl's batch."""
    return np.float64(np.float32(number))


def expected(batch, name, **options):
    """The core's own turns of ``batch`` and their advantages by episode."""
    rewards = [[as_float32(turn[2]) for turn in turns] for _, _, turns in batch]
    values = [[as_float32(turn[3]) for turn in turns] for _, _, turns in batch]
    turns = TurnBatch.from_episodes(
        rewards,
        groups=[group for group, _, _ in batch],
        envs=[env for _, env, _ in batch],
        values=values if name == "gae" else None,
    )
    advantages = compute_advantages(name, turns, gamma=GAMMA, lam=LAM, **options)
    return turns, turns.by_episode(advantages)


def algorithm(name, **options):
    return OmegaConf.create(
        {
            "adv_estimator": f"gem_{name}",
            "gamma": GAMMA,
            "lam": LAM,
            "use_kl_in_reward": False,
            "gem_options": options,
        }
    )


def run(data, name, critic=False, **options):
    """verl's own advantage call, from where its trainer has it."""
    config = algorithm(name, **options)
    require_installed(name, config)
    if not critic:
        del data.batch["values"]
    return trainer_base.compute_advantage_for_multi_trajectories(
        data,
        batch_keys=[f"u{i}_0_0" for i in range(len(data))],
        adv_estimator=config.adv_estimator,
        gamma=config.gamma,
        lam=config.lam,
        num_repeat=1,
        config=config,
    ).batch


def check(rows, batch, tokens, per_turn):
    """Every action token has its turn's number, every other token of every row has 0."""
    for row, (label, mask, _, _) in enumerate(rows):
        numbers = np.zeros(tokens.shape[1])
        if label is not None:
            _, _, turns = batch[label.episode]
            turn = label.turn - 1
            before = 0
            for position, one in enumerate(mask):
                turn += one and not before
                before = one
                numbers[position] = per_turn[label.episode][turn] if one else 0.0
            assert turn < len(turns)
        np.testing.assert_allclose(tokens[row].numpy(), numbers, rtol=0, atol=1e-6)


@pytest.mark.parametrize("per_turn", [False, True], ids=["row-per-episode", "row-per-turn"])
@pytest.mark.parametrize("name", CRITIC_FREE)
def test_same_as_the_core(name, per_turn):
    for seed in range(3):
        batch = episodes(seed)
        rows, data = as_data(rows_of(batch, per_turn), seed=seed)
        _, advantages = expected(batch, name)
        check(rows, batch, run(data, name)["advantages"], advantages)


@pytest.mark.parametrize("per_turn", [False, True], ids=["row-per-episode", "row-per-turn"])
@pytest.mark.parametrize("options", [{}, {"whiten": True}], ids=["plain", "whiten"])
def test_gae_reads_the_value_at_the_last_prompt_token(per_turn, options):
    batch = episodes(7)
    rows, data = as_data(rows_of(batch, per_turn))
    turns, advantages = expected(batch, "gae", **options)
    computed = run(data, "gae", critic=True, **options)
    check(rows, batch, computed["advantages"], advantages)
    _, plain = expected(batch, "gae")  # the critic's targets never see the whitening
    flat = np.concatenate([plain[i] for i in sorted(plain)])
    targets = turns.by_episode(value_targets(flat, turns.values))
    check(rows, batch, computed["returns"], targets)


def test_gae_without_a_critic_says_so():
    _, data = as_data(rows_of(episodes(0), False))
    with pytest.raises(GemError, match=r"needs TurnBatch\.values"):
        run(data, "gae")


def test_options_reach_the_estimator():
    batch = episodes(1)
    rows, data = as_data(rows_of(batch, False))
    _, advantages = expected(batch, "rebn", per_env=True, ddof=1)
    check(rows, batch, run(data, "rebn", per_env=True, ddof=1)["advantages"], advantages)


def test_padding_rows_change_nothing():
    batch = episodes(2)
    few = run(as_data(rows_of(batch, False), padding=0)[1], "rebn")["advantages"]
    rows, data = as_data(rows_of(batch, False), padding=20)
    check(rows, batch, run(data, "rebn")["advantages"], expected(batch, "rebn")[1])
    unpadded = run(as_data(rows, padding=0)[1], "rebn")["advantages"]
    assert torch.isclose(few.abs().sum(), unpadded.abs().sum())


def test_rows_without_labels_are_episodes_and_equal_uids_are_groups():
    mask = torch.tensor([[1, 1, 0], [1, 0, 1], [1, 1, 1]])
    rewards = torch.tensor([[0.0, 1, 0], [1, 0, 1], [0, 0, 5]])
    advantages, _ = get_adv_estimator_fn("gem_dr_grpo")(
        token_level_rewards=rewards,
        response_mask=mask,
        config=algorithm("dr_grpo"),
        index=np.array(["a", "a", "b"], dtype=object),
    )
    assert advantages.tolist() == [[-0.5, -0.5, 0], [0.5, 0, 0.5], [0, 0, 0]]


def test_an_estimator_of_a_third_party():
    @register_estimator("verl-test-constant")
    def constant(batch, *, gamma, lam, reduce, level=1.0):
        return np.full(len(batch), level)

    batch = episodes(3)
    _, data = as_data(rows_of(batch, False))
    advantages = run(data, "verl-test-constant", level=2.0)["advantages"]
    assert torch.equal(advantages, 2.0 * data.batch["response_mask"])


def test_a_wrong_registration_is_an_error():
    with pytest.raises(GemError, match=r"would run the estimator 'grpo'.*'gem_rebn'"):
        require_installed("rebn", OmegaConf.create({"adv_estimator": "grpo"}))
    own = ADV_ESTIMATOR_REGISTRY["gem_rebn"]
    ADV_ESTIMATOR_REGISTRY["gem_rebn"] = lambda **_: None
    try:
        with pytest.raises((GemError, ValueError), match="gem_rebn"):
            require_installed("rebn", algorithm("rebn"))
    finally:
        ADV_ESTIMATOR_REGISTRY["gem_rebn"] = own
    install()


def test_kl_in_the_reward_is_refused_at_run_time_too():
    config = algorithm("rebn")
    config.use_kl_in_reward = True
    with pytest.raises(GemError, match="use_kl_in_reward"):
        require_installed("rebn", config)
    with pytest.raises(GemError, match="use_kl_in_reward"):
        get_adv_estimator_fn("gem_rebn")(
            token_level_rewards=torch.zeros(1, 2),
            response_mask=torch.ones(1, 2),
            config=config,
        )
