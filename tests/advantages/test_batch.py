"""The construction of a `TurnBatch`: accepted forms, refused values, error messages."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from gem_core.advantages import TurnBatch, compute_advantages, dense_ids, spread_rows
from gem_core.errors import AdvantageError


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"rewards": [[1.0]], "episode": [0]}, "must have shape"),
        ({"rewards": [1.0, 2.0], "episode": [0]}, "has 1 entries, rewards has 2"),
        ({"rewards": ["1"], "episode": [0]}, "must hold float64 numbers"),
        ({"rewards": [1.0], "episode": [0.0]}, "must hold int64 numbers"),
        ({"rewards": [1.0], "episode": [0], "mask": [1]}, "must hold bool numbers"),
        ({"rewards": [1.0], "episode": [0], "values": [1.0, 2.0]}, "has 2 entries"),
        ({"rewards": [0.0, np.nan], "episode": [0, 0]}, "rewards is nan at turn 1"),
        ({"rewards": [0.0], "episode": [0], "values": [np.inf]}, "values is inf at turn 0"),
        ({"rewards": [0.0] * 3, "episode": [0, 1, 0]}, "2 separate places"),
        ({"rewards": [0.0] * 2, "episode": [4, 4], "group": [0, 1]}, "Episode 4 has the group"),
        ({"rewards": [0.0] * 2, "episode": [4, 4], "env": [0, 1]}, "Episode 4 has the env"),
    ],
)
def test_malformed_arrays_are_refused(arrays, message):
    with pytest.raises(AdvantageError, match=message):
        TurnBatch(**arrays)


def test_arrays_are_own_read_only_copies_of_the_right_dtype():
    rewards = np.array([1, 2], dtype=np.int32)
    batch = TurnBatch(rewards, np.array([0, 0], dtype=np.uint8))
    rewards[0] = 99
    assert batch.rewards.tolist() == [1.0, 2.0]
    assert batch.rewards.dtype == np.float64 and batch.episode.dtype == np.int64
    with pytest.raises(ValueError, match="read-only"):
        batch.rewards[0] = 5.0


def test_masked_turns_need_no_order():
    batch = TurnBatch([1.0, 7.0, 2.0], [0, 0, 1], mask=[True, False, True])
    padded = TurnBatch([1.0, 7.0, 1.0], [0, -1, 0], mask=[True, False, True])
    assert len(batch.valid()) == 2
    assert padded.valid().episode.tolist() == [0, 0]
    with pytest.raises(AdvantageError, match=r"use batch\.valid\(\)"):
        _ = batch.starts


def test_boundaries():
    batch = TurnBatch.from_episodes([[1.0, 2.0], [3.0], [4.0, 5.0, 6.0]])
    assert batch.starts.tolist() == [True, False, True, True, False, False]
    assert batch.ends.tolist() == [False, True, True, False, False, True]
    assert TurnBatch.from_episodes([]).starts.tolist() == []


def test_from_episodes_repeats_labels_per_turn():
    batch = TurnBatch.from_episodes(
        [[1.0, 2.0], [], [3.0]],
        groups=["a", "b", "a"],
        envs=[4, 5, 6],
        values=[[0.1, 0.2], [], [0.3]],
        bootstraps=[7.0, 8.0, 9.0],
    )
    assert batch.episode.tolist() == [0, 0, 2]
    assert batch.group.tolist() == [0, 0, 0]
    assert batch.env.tolist() == [4, 4, 6]
    assert batch.values.tolist() == [0.1, 0.2, 0.3]
    assert batch.bootstrap.tolist() == [7.0, 7.0, 9.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"groups": [0]}, "1 groups for 2 episodes"),
        ({"envs": [0, 1, 2]}, "3 envs for 2 episodes"),
        ({"values": [[0.0]]}, "1 values for 2 episodes"),
        ({"values": [[0.0], [0.0]]}, "episode 0 has 2 rewards but 1 values"),
        ({"bootstraps": []}, "0 bootstraps for 2 episodes"),
        ({"envs": [0.5, 1.5]}, "env must hold int64"),
    ],
)
def test_from_episodes_counts(arguments, message):
    with pytest.raises(AdvantageError, match=message):
        TurnBatch.from_episodes([[1.0, 2.0], [3.0]], **arguments)


def test_by_episode_keeps_masked_turns():
    batch = TurnBatch([1.0, 2.0, 3.0], [5, 5, 6], mask=[True, False, True])
    by_episode = batch.by_episode(compute_advantages("reinforce", batch, gamma=1.0))
    assert {k: v.tolist() for k, v in by_episode.items()} == {5: [1.0, 0.0], 6: [3.0]}
    with pytest.raises(AdvantageError, match="3 turns"):
        batch.by_episode(np.zeros(2))


def test_batches_pickle():
    batch = TurnBatch.from_episodes([[1.0, 2.0], [3.0]], groups=["x", "y"])
    again = pickle.loads(pickle.dumps(batch))
    assert np.array_equal(again.rewards, batch.rewards) and again.values is None


def test_dense_ids():
    assert dense_ids([5, np.int64(3), 5]).tolist() == [5, 3, 5]
    assert dense_ids(np.array(["u1", "u0", "u1"], dtype=object)).tolist() == [0, 1, 0]
    assert dense_ids([]).shape == (0,)


def test_from_token_rows():
    mask = [[0, 1, 1, 0, 1, 0], [1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]]
    rewards = np.zeros((3, 6))
    rewards[0, 2] = 0.25
    rewards[0, 5] = 1.0  # the second is on an observation token
    rewards[1, 0] = -1.0
    values = np.arange(18.0).reshape(3, 6)
    batch, spans = TurnBatch.from_token_rows(
        rewards, mask, groups=["u", "u", "pad"], values=values, bootstraps=[0.5, 0.0, 0.0]
    )
    assert spans == [[(1, 3), (4, 5)], [(0, 1)], []]
    assert batch.rewards.tolist() == [0.25, 1.0, -1.0]
    assert batch.episode.tolist() == [0, 0, 1] and batch.group.tolist() == [0, 0, 0]
    assert batch.values.tolist() == [1.0, 4.0, 6.0]
    assert batch.bootstrap.tolist() == [0.5, 0.5, 0.0]
    tokens = spread_rows([0.5, -1.0, 2.0], spans, 6)
    assert tokens.tolist() == [[0, 0.5, 0.5, 0, -1, 0], [2, 0, 0, 0, 0, 0], [0] * 6]


def test_from_token_rows_takes_spans_where_a_mask_cannot_tell_turns_apart():
    batch, spans = TurnBatch.from_token_rows([[0.0, 1.0, 0.0, 2.0]], spans=[[(0, 2), (2, 4)]])
    assert batch.rewards.tolist() == [1.0, 2.0] and spans == [[(0, 2), (2, 4)]]


@pytest.mark.parametrize(
    ("rewards", "arguments", "message"),
    [
        ([0.0], {"response_mask": [1]}, "rewards \\[rows, tokens\\]"),
        ([[0.0]], {}, "exactly one of"),
        ([[0.0]], {"response_mask": [[1, 0]]}, "differ"),
        ([[0.0]], {"response_mask": [[1]], "values": [[1.0, 2.0]]}, "differ"),
        ([[0.0]], {"spans": []}, "spans of 0 rows for 1"),
        ([[1.0, 0.0]], {"response_mask": [[0, 1]]}, "before its first action token"),
        ([[1.0, 0.0]], {"response_mask": [[0, 0]]}, "has no action token"),
        ([[np.nan, 0.0]], {"response_mask": [[0, 1]]}, "before its first action token"),
    ],
)
def test_from_token_rows_loses_no_reward(rewards, arguments, message):
    with pytest.raises(AdvantageError, match=message):
        TurnBatch.from_token_rows(rewards, **arguments)
