"""gem_core.advantages in the place of RL2's ``compute_advantages``.

RL2 computes advantages on rank 0, for the whole batch: statistics are over all turns of all ranks
without a reduction.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from gem_core.advantages import (
    TurnBatch,
    compute_advantages,
    describe,
    normalise,
    runs_of_ones,
    value_targets,
)
from gem_core.episode import Episode
from gem_core.errors import GemError
from gem_core.recipe import Recipe

_SUMMARY = {"mean": "advantage_mean", "std": "advantage_std", "constant": "constant"}


class TurnSpan(NamedTuple):
    """Action tokens of one turn: ``tensor[sequence, start:end]`` in RL2's shifted layout."""

    episode: int
    sequence: int
    start: int
    end: int


def recover_turns(action_mask: torch.Tensor, cu_seqs: torch.Tensor) -> list[TurnSpan]:
    """Find the turns of a batch: RL2 keeps no turn ids, but observations lie between actions.

    Args:
        action_mask: [sequences, tokens], 1 on action tokens.
        cu_seqs: [episodes + 1], first sequence of each episode.

    Returns:
        The turns, episode by episode in time order.
    """
    rows = action_mask.cpu().numpy()
    return [
        TurnSpan(episode, sequence, start, end)
        for episode, (first, last) in enumerate(pairwise(cu_seqs.tolist()))
        for sequence in range(first, last)
        for start, end in runs_of_ones(rows[sequence])
    ]


def check_turns(episodes: Sequence[Episode], turns: Sequence[TurnSpan]) -> None:
    """Raise GemError unless the recovered turns are those that were played.

    They differ where an empty observation, with no template text either, leaves no token between
    two actions.
    """
    played = sum(not turn.aborted for episode in episodes for turn in episode.turns)
    if len(turns) != played:
        raise GemError(
            f"{played} turns were played, RL2's tensors show {len(turns)}: two actions have no "
            "token between them. Use a template with text around observations."
        )


class Advantages:
    """Callable with the signature of RL2's ``compute_advantages``; writes into its tensors.

    Args:
        recipe: estimator, its options, gamma and lambda.
        episodes: set it before each call where the episodes are known (environments, groups);
            else groups are ``batch.group_size`` neighbours, as RL2 lays them out.

    Attributes:
        summary: ``advantage/*`` metrics of the last batch.
    """

    def __init__(self, recipe: Recipe, episodes: Sequence[Episode] | None = None) -> None:
        self.recipe, self.episodes = recipe, episodes
        self.summary: dict[str, float] = {}

    def __call__(self, config: Any, tensors: dict[str, Any], cu_seqs: Any, step: int) -> None:
        """Add ``advantages`` (and the critic's ``returns`` and ``value_mask``) to ``tensors``."""
        turns, like = recover_turns(tensors["action_mask"], cu_seqs), tensors["action_mask"]
        batch = self.turn_batch(tensors, turns, cu_seqs)
        advantages, targets = estimate(self.recipe, batch)
        summary = describe(batch, advantages)
        self.summary = {f"advantage/{k}": summary[v] for k, v in _SUMMARY.items()}
        tensors["advantages"] = _spread(advantages, turns, like)
        if targets is not None:
            tensors["returns"] = _spread(targets, turns, like)
            # The critic is read, and so trained, at the last prompt token of each turn alone.
            first = [turn._replace(end=turn.start + 1) for turn in turns]
            tensors["value_mask"] = _spread(np.ones(len(turns)), first, like).to(like.dtype)
        if "final_mask" in tensors:  # final states have served: RL2 would count them as sequences
            trained = tensors.pop("final_mask").sum(-1) == 0
            tensors.update({key: tensor[trained] for key, tensor in tensors.items()})

    def turn_batch(self, tensors: Any, turns: Sequence[TurnSpan], cu_seqs: Any) -> TurnBatch:
        """The turns as the estimators read them; a KL penalty in the rewards is included."""
        rewards = tensors["rewards"].double()
        values = tensors.get("old_values", tensors.get("values"))  # newer name, name in 0.0.2
        fields: dict[str, list[Any]] = {
            "rewards": [float(rewards[t.sequence, t.start : t.end].sum()) for t in turns],
            "episode": [t.episode for t in turns],
            "group": [t.episode // self.recipe.batch.group_size for t in turns],
        }
        if self.episodes is not None:
            ids = sorted({episode.env_id for episode in self.episodes})
            own = [self.episodes[t.episode] for t in turns]
            fields |= {"group": [e.group for e in own], "env": [ids.index(e.env_id) for e in own]}
        if values is not None:
            # RL2's layout is shifted by one: the index of a turn's first action token is that of
            # its last prompt token, where the critic has read the whole state.
            fields["values"] = [float(values[t.sequence, t.start]) for t in turns]
            finals = tensors.get("final_mask", torch.zeros(0, 1)).nonzero().tolist()
            owner = torch.bucketize(torch.tensor([s for s, _ in finals]), cu_seqs, right=True) - 1
            last = {
                e: float(values[s, p]) for e, (s, p) in zip(owner.tolist(), finals, strict=True)
            }
            fields["bootstrap"] = [last.get(t.episode, 0.0) for t in turns]
        whole = ("episode", "group", "env")
        return TurnBatch(
            **{k: np.array(v, np.int64 if k in whole else np.float64) for k, v in fields.items()}
        )


def estimate(recipe: Recipe, batch: TurnBatch) -> tuple[np.ndarray, np.ndarray | None]:
    """Advantage per turn by the recipe's estimator, and the critic's targets where it has one."""
    algorithm = recipe.algorithm
    options, whiten = dict(algorithm.options), False
    if algorithm.estimator == "gae":  # targets come from advantages that are not whitened
        whiten = bool(options.pop("whiten", False))
    advantages = compute_advantages(
        algorithm.estimator, batch, gamma=algorithm.gamma, lam=algorithm.lam, **options
    )
    if batch.values is None:
        return advantages, None
    return normalise(advantages) if whiten else advantages, value_targets(advantages, batch.values)


def require_installed(train: Any, advantages: Advantages) -> None:
    """Raise GemError unless the training loop ``train`` would call ``advantages``."""
    if inspect.unwrap(train).__globals__.get("compute_advantages") is not advantages:
        raise GemError(
            "RL2's training loop would use its own advantages, not the recipe's estimator: "
            "RL2.trainer.ppo.compute_advantages was replaced. Train through gem_rl2.launch."
        )


def _spread(numbers: np.ndarray, turns: Sequence[TurnSpan], like: torch.Tensor) -> torch.Tensor:
    """One number per turn on the turn's tokens, 0 elsewhere; float32 of the shape of ``like``."""
    out = torch.zeros(like.shape)
    for number, turn in zip(numbers.tolist(), turns, strict=True):
        out[turn.sequence, turn.start : turn.end] = number
    return out
