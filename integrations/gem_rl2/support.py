"""Log-probabilities among the tokens that could be drawn, for ``sampling.support = "drawn"``.

RL2's actor makes log-probabilities and entropies of the logits of packed rows, for the update, the
policy before the step's first update, and the initial model. There the logits are restricted
(`gem_adapters.support`). RL2 moves rows as tensors [rows, tokens]: `NUMBERS` is one more of them,
and each number stands for a set that all ranks have in `Sets`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from RL2.datasets.rl import state_dict_to_tensor_dict
from RL2.utils.sequence_parallelism import sequence_parallelism_manager
from RL2.workers import Actor

from gem_adapters.support import SUPPORT, restricted
from gem_core.episodes.data import Episode, Support
from gem_core.errors import GemError
from gem_rl2.rollout import to_native

NUMBERS = "gem_support"
"""RL2's name of the numbers of the sets, int64 [rows, tokens], where position ``p`` has that of
token ``p + 1``; 0 = no set."""


class Sets:
    """The sets of a training batch, numbered from 1. All ranks have the same."""

    def __init__(self) -> None:
        self._supports: Support = []

    def add(self, support: Support, loss_mask: list[int]) -> list[int]:
        """Keep the sets of the trained tokens of a row; return the number of each token's."""
        numbers = []
        for ids, trained in zip(support, loss_mask, strict=True):
            if trained:
                self._supports.append(ids)
            numbers.append(len(self._supports) if trained else 0)
        return numbers

    def find(self, numbers: torch.Tensor) -> Support:
        """Return the sets of a packed row, [tokens]."""
        return [self._supports[number - 1] if number else None for number in numbers.tolist()]

    def share(self) -> None:
        """Give all ranks the sets of the first one; a collective call."""
        shared = [self._supports]
        dist.broadcast_object_list(shared, src=0)
        self._supports = shared[0]

    def clear(self) -> None:
        """Begin a batch."""
        self._supports = []


def to_tensors(
    episode: Episode, final: list[int], sets: Sets | None
) -> list[dict[str, torch.Tensor]]:
    """Return the rows of an episode as RL2's tensors.

    Args:
        episode: a finished episode.
        final: see `gem_rl2.rollout.to_native`.
        sets: keeps the episode's sets; ``None`` = log-probabilities are over all tokens.
    """
    rows = []
    for sequence in to_native(episode, final):
        tensors = state_dict_to_tensor_dict(sequence)
        if sets is not None:
            mask = sequence["action_mask"]
            numbers = sets.add(sequence.get(SUPPORT, [None] * len(mask)), mask)
            tensors[NUMBERS] = torch.LongTensor(numbers[1:])
        rows.append(tensors)
    return rows


@sequence_parallelism_manager
def score_drawn(worker: Any, packed: dict[str, Any], return_entropy: bool = False) -> Any:
    """Return what RL2's ``Actor.forward`` returns, among the tokens that could be drawn.

    Args:
        worker: RL2's actor, with its ``sets``.
        packed: the rows of a forward pass, packed by RL2.
        return_entropy: whether to return the entropies, too.

    Raises:
        GemError: a trained token has no set, or is not in it.
    """
    numbers, trained = packed[NUMBERS], packed["action_mask"]
    lost = int(((numbers == 0) & trained.bool()).sum())
    if lost:
        raise GemError(
            f"{lost} trained tokens have no set of tokens that could be drawn: it was lost on the "
            'way to the update. Report it, and set sampling.support = "all" until then.'
        )
    group = worker.device_mesh["tp"]  # each rank has the logits of a part of the vocabulary
    part = (group.get_local_rank(), group.size())
    supports = [worker.sets.find(numbers[0])]
    with restricted(worker.model, supports, packed["actions"], trained, part):
        return Actor.forward.__wrapped__(worker, packed, return_entropy)
