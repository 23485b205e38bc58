"""gem_core.advantages in the place of RL2's ``compute_advantages``.

RL2 computes advantages on rank 0, for the whole batch: statistics are over all turns of all ranks
without a reduction.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from gem_core.adapters.estimate import estimate
from gem_core.advantages import TurnBatch, spread_rows
from gem_core.episodes.data import Episode
from gem_core.errors import GemError
from gem_core.training.recipe import Recipe


class Advantages:
    """Callable with the signature of RL2's ``compute_advantages``; writes into its tensors.

    RL2 keeps no turn ids, but between two actions of a row there is an observation: turns are the
    runs of ones in its action mask, checked against the episodes that were played.

    Args:
        recipe: estimator, its options, gamma and lambda.
        episodes: those in the tensors; set it before each call. None: not known.

    Attributes:
        in_order: the episodes have the tensors' order, so that environments can be told apart.
        metrics: of the last batch, see `gem_core.advantages.Estimate`.
    """

    in_order = True

    def __init__(self, recipe: Recipe, episodes: Sequence[Episode] | None = None) -> None:
        self.recipe, self.episodes = recipe, episodes
        self.metrics: dict[str, float] = {}

    def __call__(self, config: Any, tensors: dict[str, Any], cu_seqs: Any, step: int) -> None:
        """Add ``advantages`` (and the critic's ``returns`` and ``value_mask``) to ``tensors``.

        Args:
            config: RL2's; not read.
            tensors: [rows, tokens] each, where position ``p`` predicts token ``p + 1``.
            cu_seqs: [episodes + 1], first row of each episode.
            step: RL2's; not read.
        """
        mask = tensors["action_mask"].numpy()
        owner = np.repeat(np.arange(len(cu_seqs) - 1), np.diff(cu_seqs))
        batch, spans = TurnBatch.from_token_rows(
            tensors["rewards"].double().numpy(),  # with a KL penalty, where the recipe has one
            mask,
            groups=(owner // self.recipe.batch.group_size).tolist(),
            envs=self._environments(owner),
            **_critic(tensors, owner),
        )
        self._check(len(batch))
        found = estimate(replace(batch, episode=owner[batch.episode]), self.recipe.algorithm)
        self.metrics = found.metrics

        def spread(per_turn: Any, spans: Any = spans) -> torch.Tensor:
            return torch.from_numpy(spread_rows(per_turn, spans, mask.shape[1])).float()

        tensors["advantages"] = spread(found.advantages)
        if found.targets is not None:
            tensors["returns"] = spread(found.targets)
            # The critic is read, and so trained, at the last prompt token of each turn alone.
            first = [[(start, start + 1) for start, _ in row] for row in spans]
            tensors["value_mask"] = spread(np.ones(len(batch)), first).to(tensors["action_mask"])
        trained = torch.from_numpy(mask.any(axis=1))  # final states have served
        tensors.update({key: tensor[trained] for key, tensor in tensors.items()})

    def _environments(self, owner: np.ndarray) -> list[int] | None:
        if self.episodes is None or not self.in_order:
            return None
        ids = sorted({episode.env_id for episode in self.episodes})
        return [ids.index(self.episodes[number].env_id) for number in owner]

    def _check(self, found: int) -> None:
        """They differ where an empty observation leaves no token between two actions."""
        turns = [turn for episode in self.episodes or () for turn in episode.turns]
        played = sum(not turn.aborted for turn in turns)
        if self.episodes is not None and found != played:
            raise GemError(
                f"{played} turns were played, RL2's tensors show {found}: two actions have no "
                "token between them. Use a template with text around observations."
            )


def _critic(tensors: dict[str, Any], owner: np.ndarray) -> dict[str, Any]:
    """The critic's values [rows, tokens], and V(s_T) of each row's episode, 0 where it terminated.

    RL2's layout is shifted by one: the index of a turn's first action token is that of its last
    prompt token, where the critic has read the whole state. A row without actions is the state in
    which its episode was cut off.
    """
    values = tensors.get("old_values", tensors.get("values"))  # newer name, name in 0.0.2
    if values is None:
        return {}
    at_end = values.gather(1, tensors["eos_mask"].argmax(-1, keepdim=True))[:, 0].tolist()
    finals = (tensors["action_mask"].sum(-1) == 0).nonzero()[:, 0].tolist()
    ends = {owner[row]: at_end[row] for row in finals}
    bootstraps = [ends.get(number, 0.0) for number in owner]
    return {"values": values.double().numpy(), "bootstraps": bootstraps}


def require_installed(train: Any, advantages: Advantages) -> None:
    """Raise GemError unless the training loop ``train`` would call ``advantages``."""
    if inspect.unwrap(train).__globals__.get("compute_advantages") is not advantages:
        raise GemError(
            "RL2's training loop would use its own advantages, not the recipe's estimator: "
            "RL2.trainer.ppo.compute_advantages was replaced. Train through gem_rl2.launch."
        )
