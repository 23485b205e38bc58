"""The result of a replay: what an adapter reports after its trainer processed a frozen batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gem_core.episodes.data import Episode, Support
from gem_core.runs.recipe.recipe import Recipe
from gem_parity.reference_advantages import TrainedTurns, advantages


@dataclass
class Row:
    """One training sequence as the trainer has it, without padding.

    Attributes:
        episode: position of its episode in the batch.
        token_ids: length L.
        loss_mask: length L, 1 on trained tokens.
        advantages: float64, length L, 0 off the mask.
        support: length L, where the log-probabilities are over the tokens that could be drawn.
    """

    episode: int
    token_ids: list[int]
    loss_mask: list[int]
    advantages: np.ndarray
    support: Support | None = None


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
    """Return the advantage of every turn of every episode, for estimators without a critic.

    They are those of `gem_parity.reference_advantages`; an excluded turn has 0.
    """
    batch = [TrainedTurns.of(episode) for episode in episodes]
    result = []
    for episode, played, own in zip(
        episodes, batch, advantages(recipe.algorithm, batch), strict=True
    ):
        by_turn = dict(zip(played.turns, own, strict=True))
        result.append([by_turn.get(turn, 0.0) for turn in range(len(episode.turns))])
    return result


def expected_rows(recipe: Recipe, episodes: Sequence[Episode]) -> list[Row]:
    """Return the rows that every trainer must have: one per segment with trained tokens."""
    rows = []
    pairs = zip(episodes, turn_advantages(recipe, episodes), strict=True)
    for number, (episode, per_turn) in enumerate(pairs):
        for segment in episode.segments:
            mask = [0] * len(segment.token_ids)
            on_tokens = np.zeros(len(segment.token_ids))
            for turn, start, end in segment.spans:
                if not episode.turns[turn].aborted:
                    mask[start:end] = [1] * (end - start)
                    on_tokens[start:end] = per_turn[turn]
            if any(mask):
                support = segment.support if recipe.sampling.support == "drawn" else None
                rows.append(Row(number, segment.token_ids, mask, on_tokens, support))
    return rows
