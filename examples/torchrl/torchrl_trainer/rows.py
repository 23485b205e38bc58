"""Episodes as a TensorDict: what GRPOLoss reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from gem_core.episodes.data import Episode, Segment

TOKENS = ("tokens", "full")
PRESENT = ("masks", "all_attention_mask")
TRAINED = ("masks", "all_assistant_mask")
OLD = ("log_probs", "full")
INITIAL = ("next", "ref_log_probs", "full")


def make_rows(episodes: Sequence[Episode], per_turn: np.ndarray) -> TensorDict:
    """Return one row per segment, padded on the right, under the names that TorchRL reads.

    Besides these, ``rollout`` has the log-probabilities that the engine reported, ``episode`` the
    position of the row's episode, and ``episodes`` their number.

    Args:
        episodes: those of a training step.
        per_turn: the advantage of each turn of each episode.
    """
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

    rows = TensorDict(batch_size=[len(owned)])
    rows[TOKENS] = pad(lambda _, segment: segment.token_ids, torch.int64)
    rows[PRESENT] = pad(lambda _, segment: [1] * len(segment.token_ids), torch.bool)
    rows[TRAINED] = pad(lambda _, segment: segment.loss_mask, torch.bool)
    rows["advantage"] = pad(advantages, torch.float32)[..., None]
    rows["rollout"] = pad(lambda _, segment: segment.logprobs or [], torch.float32)
    rows["episode"] = torch.tensor([number for number, _ in owned])
    rows["episodes"] = torch.full_like(rows["episode"], len(episodes))
    return rows
