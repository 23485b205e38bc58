"""verl's critic is trained where it is read."""

from __future__ import annotations

import torch

from gem_verl.critic import first_of_turns


def test_the_first_token_of_each_turn_is_left():
    rows = [[1, 1, 0, 1, 0], [0, 0], [1], [1, 0, 0, 1, 1, 1], [0, 1]]
    mask = torch.nested.as_nested_tensor([torch.tensor(row) for row in rows], layout=torch.jagged)
    first = first_of_turns(mask)
    assert [row.tolist() for row in first.unbind()] == [
        [1, 0, 0, 1, 0],
        [0, 0],
        [1],
        [1, 0, 0, 1, 0, 0],
        [0, 1],
    ]
    assert first.dtype == mask.dtype
    assert [row.tolist() for row in mask.unbind()] == rows
