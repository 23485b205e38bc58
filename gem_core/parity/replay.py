"""The result of a replay: what an adapter reports after its trainer processed a frozen batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gem_core.adapters.turn_batch import turn_batch
from gem_core.advantages import compute_advantages
from gem_core.advantages.turns import spread
from gem_core.episodes.data import Episode
from gem_core.training.recipe import Recipe


@dataclass
class Row:
    """One training sequence as the trainer has it, without padding.

    Attributes:
        episode: position of its episode in the batch.
        token_ids: length L.
        loss_mask: length L, 1 on trained tokens.
        advantages: float64, length L, 0 off the mask.
    """

    episode: int
    token_ids: list[int]
    loss_mask: list[int]
    advantages: np.ndarray


@dataclass
class Replay:
    """Rows, loss and gradient of the first update on a frozen batch.

    Attributes:
        rows: every sequence; rows whose mask is all zero may be omitted.
        loss: the policy loss before the first update (ratio 1).
        gradients: parameter name -> gradient before clipping, float64.
    """

    rows: list[Row]
    loss: float
    gradients: dict[str, np.ndarray]


def turn_advantages(recipe: Recipe, episodes: Sequence[Episode]) -> list[list[float]]:
    """Return the advantage of every turn of every episode, for estimators without a critic."""
    algorithm = recipe.algorithm
    flat = compute_advantages(
        algorithm.estimator,
        turn_batch(episodes),
        gamma=algorithm.gamma,
        lam=algorithm.lam,
        **algorithm.options,
    )
    ends = np.cumsum([len(e.turns) for e in episodes])
    return [part.tolist() for part in np.split(flat, ends[:-1])]


def expected_rows(recipe: Recipe, episodes: Sequence[Episode]) -> list[Row]:
    """Return the rows that every trainer must have: one per segment with trained tokens."""
    rows = []
    pairs = zip(episodes, turn_advantages(recipe, episodes), strict=True)
    for number, (episode, per_turn) in enumerate(pairs):
        for segment in episode.segments:
            if not any(segment.loss_mask):
                continue
            kept = [(t, s, e) for t, s, e in segment.spans if not episode.turns[t].aborted]
            values = [per_turn[t] for t, _, _ in kept]
            spans = [(s, e) for _, s, e in kept]
            advantages = spread(values, spans, len(segment.token_ids))
            rows.append(Row(number, segment.token_ids, segment.loss_mask, advantages))
    return rows
