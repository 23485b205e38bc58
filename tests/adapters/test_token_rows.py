"""Episodes as labelled rows of a padded batch, in any order and in any number of rows."""

from __future__ import annotations

import numpy as np
import pytest

from gem_adapters.token_rows import RowLabel, TokenRows, final_values, read_labels
from gem_core.advantages import TurnBatch, compute_advantages
from gem_core.errors import AdvantageError

# (label, mask, rewards, values): episode 5 in two rows, episode 3 in one, and a padding row.
ROWS = [
    (RowLabel(5, 1, 2, 1), [1, 1, 0, 1], [0, 4, 0, 5], [7, 9, 9, 8]),
    (RowLabel(3, 0, 1, 0), [0, 1, 0, 0], [0, 1, 0, 0], [9, 4, 9, 9]),
    (RowLabel(9, 0, 0, 0), [0, 0, 0, 0], [0, 0, 0, 0], [9, 9, 9, 9]),
    (RowLabel(5, 0, 2, 1), [1, 0, 0, 0], [3, 0, 0, 0], [6, 9, 9, 9]),
]


def table(order=(0, 1, 2, 3)):
    labels, mask, rewards, values = zip(*(ROWS[i] for i in order), strict=True)
    return TokenRows(labels, rewards, mask, values)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 0, 3)])
def test_turns_come_back_in_order_whatever_the_rows_order(order):
    batch = table(order).batch
    assert batch.rewards.tolist() == [1, 3, 4, 5]
    assert batch.episode.tolist() == [3, 5, 5, 5]
    assert batch.group.tolist()[1:] == [batch.group[1]] * 3 != [batch.group[0]] * 3
    assert batch.env.tolist() == [0, 1, 1, 1]
    assert batch.values.tolist() == [4, 6, 7, 8]


def test_numbers_go_back_to_the_action_tokens_of_their_rows():
    spread = table().spread([10.0, 20.0, 30.0, 40.0])
    assert spread.tolist() == [[30, 30, 0, 40], [0, 10, 0, 0], [0, 0, 0, 0], [20, 0, 0, 0]]


def test_returns_cross_the_rows_of_an_episode():
    batch = table().batch
    whole = TurnBatch.from_episodes([[1.0], [3.0, 4.0, 5.0]])
    for name in ("reinforce", "rebn"):
        advantages = compute_advantages(name, batch, gamma=0.5, lam=1.0)
        expected = compute_advantages(name, whole, gamma=0.5, lam=1.0)
        np.testing.assert_allclose(advantages, expected)


def test_the_value_of_a_final_state_is_read_behind_the_last_action():
    labels = [RowLabel(5, 1, 2, 1, final=2), RowLabel(3, 0, 1, 0), RowLabel(9, 0, 0, 0, final=1)]
    mask = [[1, 1, 0, 1, 0, 0], [0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]]
    values = np.arange(18.0).reshape(3, 6)
    assert final_values(labels, mask, values) == {5: 5.0}
    rewards = np.zeros((3, 6))
    batch = TokenRows(labels, rewards, mask, values, final_values(labels, mask, values)).batch
    assert batch.episode.tolist() == [3, 5, 5] and batch.bootstrap.tolist() == [0.0, 5.0, 5.0]
    assert read_labels([labels[0].encode()]) == labels[:1]


def test_two_rows_with_one_label_are_an_error():
    with pytest.raises(AdvantageError, match="same label"):
        table((0, 0))
    assert len(table((2, 2, 1)).batch) == 1  # padding is ignored


def test_labels_survive_as_text_and_foreign_ids_are_episodes_in_groups():
    label = RowLabel(10**12, 3, 4, 5)
    assert read_labels([label.encode()]) == [label]
    foreign = read_labels(["x", "y", "x", 7])
    assert [label.episode for label in foreign] == [0, 1, 2, 3]
    assert [label.group for label in foreign] == [0, 1, 0, 3]
    assert RowLabel(2, 9, 0, 0) < RowLabel(10, 0, 0, 0) < RowLabel(10, 1, 0, 0)


def test_a_row_per_turn_is_a_table_of_one_column():
    labels = [
        RowLabel(4, 1, 0, 0),
        RowLabel(-1, 0, 0, 0),
        RowLabel(2, 0, 0, 0),
        RowLabel(4, 0, 0, 0),
    ]
    rows = TokenRows(
        labels,
        rewards=[[1.0], [9.0], [0.5], [0.0]],
        mask=[[1], [0], [1], [1]],
        values=[[0.2], [9.0], [0.3], [0.1]],
        bootstraps={4: 0.4},
    )
    assert rows.batch.rewards.tolist() == [0.5, 0.0, 1.0]
    assert rows.batch.episode.tolist() == [2, 4, 4]
    assert rows.batch.values.tolist() == [0.3, 0.1, 0.2]
    assert rows.batch.bootstrap.tolist() == [0.0, 0.4, 0.4]
    assert rows.spread([1.0, 2.0, 3.0]).tolist() == [[3.0], [0.0], [1.0], [2.0]]


def test_a_rank_without_rows_has_an_empty_batch():
    rows = TokenRows([], np.zeros((0, 1)), np.zeros((0, 1)))
    assert len(rows.batch) == 0 and rows.spread([]).shape == (0, 1)
