"""Episodes as rows of tokens: what the loss is computed on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from gem_core.episodes.data import Episode, Segment


@dataclass
class Rows:
    """One row per segment; all tensors are [rows, tokens], padded on the right.

    Attributes:
        ids: tokens.
        mask: whether a token is trained.
        advantages: of each trained token, that of its turn.
        sampled: log-probabilities that the engine reported.
        episodes: per row the position of its episode.
    """

    ids: Tensor
    mask: Tensor
    advantages: Tensor
    sampled: Tensor
    episodes: list[int]


def make_rows(episodes: Sequence[Episode], per_turn: np.ndarray) -> Rows:
    """Return the rows of a batch; ``per_turn`` has an advantage for each turn of each episode."""
    first = np.cumsum([0, *(len(episode.turns) for episode in episodes)])
    owned = [(n, segment) for n, episode in enumerate(episodes) for segment in episode.segments]

    def advantages(number: int, segment: Segment) -> list[float]:
        row = np.zeros(len(segment.token_ids))
        for turn, start, end in segment.spans:
            row[start:end] = per_turn[first[number] + turn]
        return (row * segment.loss_mask).tolist()

    def pad(of: Callable[[int, Segment], Sequence[float]], dtype: torch.dtype) -> Tensor:
        tensors = [torch.tensor(of(number, segment), dtype=dtype) for number, segment in owned]
        return pad_sequence(tensors, batch_first=True)

    return Rows(
        ids=pad(lambda _, segment: segment.token_ids, torch.int64),
        mask=pad(lambda _, segment: segment.loss_mask, torch.bool),
        advantages=pad(advantages, torch.float32),
        sampled=pad(lambda _, segment: segment.logprobs or [], torch.float32),
        episodes=[number for number, _ in owned],
    )
