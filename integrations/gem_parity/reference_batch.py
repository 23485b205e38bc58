"""A batch of episodes as padded rows of tokens, and what is trained in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from gem_core.episodes.data import Episode, Support
from gem_parity.frozen import FrozenBatch
from gem_parity.recorded import TracedRow, Unit
from gem_parity.reference_advantages import TrainedTurns


class Action(NamedTuple):
    """The tokens of one trained turn.

    Attributes:
        episode: position of the episode.
        turn: number of the turn.
        row: row of its segment.
        start: place of its first token, at least 1.
        end: place behind its last token.
    """

    episode: int
    turn: int
    row: int
    start: int
    end: int


class ReferenceBatch:
    """The token rows of a step; place p of the per-token tensors belongs to token p.

    Args:
        batch: episodes and their machines.

    Attributes:
        episodes: the episodes.
        states: per episode the tokens up to the state in which a limit cut it, or empty.
        token_ids: int64 [rows, tokens], padded with 0 on the right; a row is a segment.
        supports: per row the tokens that could be drawn, where that was kept.
        actions: the trained turns, episode by episode in time order.
    """

    def __init__(self, batch: FrozenBatch) -> None:
        self.episodes: Sequence[Episode] = batch.episodes
        self.states = [machine.bootstrap_state() for machine in batch.machines]
        sequences: list[list[int]] = []
        self.supports: list[Support | None] = []
        self.actions: list[Action] = []
        for number, episode in enumerate(batch.episodes):
            for segment in episode.segments:
                for turn, start, end in segment.spans:
                    if not episode.turns[turn].aborted:
                        self.actions.append(Action(number, turn, len(sequences), start, end))
                sequences.append(segment.token_ids)
                self.supports.append(segment.support)
        self.sequences = sequences
        self.token_ids = padded(sequences)

    def rows(self, advantages: Tensor, logprobs: Tensor) -> list[TracedRow]:
        """Return the sequences with what is on their tokens, both [rows, tokens]."""
        masks = self.mask(self.actions).int()
        return [
            TracedRow(
                ids,
                masks[row, : len(ids)].tolist(),
                advantages[row, : len(ids)].double().numpy(),
                logprobs[row, : len(ids)].double().numpy(),
            )
            for row, ids in enumerate(self.sequences)
        ]

    def played(self) -> list[TrainedTurns]:
        """Return what the estimators read, without values."""
        return [TrainedTurns.of(episode) for episode in self.episodes]

    def spread(self, per_turn: Sequence[Sequence[float]]) -> Tensor:
        """Put one number per trained turn on its tokens; float64 [rows, tokens]."""
        numbers = [number for row in per_turn for number in row]
        tokens = torch.zeros(self.token_ids.shape, dtype=torch.float64)
        for action, number in zip(self.actions, numbers, strict=True):
            tokens[action.row, action.start : action.end] = number
        return tokens

    def trained(self, units: Sequence[Unit]) -> list[Action]:
        """Return the actions of ``units``, each as often as it is in them."""
        by_episode: dict[int, list[Action]] = {}
        for action in self.actions:
            by_episode.setdefault(action.episode, []).append(action)
        return [
            action
            for episode, turn in units
            for action in by_episode.get(episode, [])
            if turn in (None, action.turn)
        ]

    def mask(self, actions: Sequence[Action]) -> Tensor:
        """Return float64 [rows, tokens]: how often each token is trained."""
        tokens = torch.zeros(self.token_ids.shape, dtype=torch.float64)
        for action in actions:
            tokens[action.row, action.start : action.end] += 1
        return tokens


def cut_off(supports: Sequence[Support | None], shape: Sequence[int]) -> Tensor:
    """Return what a token's logit gets, [rows, places, vocabulary]: 0, -inf where it was cut off.

    Args:
        supports: per row; ``None`` cuts nothing off.
        shape: the last two sizes of the result, behind others; place p predicts token p + 1.
    """
    *_, places, vocabulary = shape
    added = torch.zeros(len(supports), places, vocabulary)
    for row, support in enumerate(supports):
        for place, ids in enumerate(support or []):
            if ids is not None:
                added[row, place - 1] = -torch.inf
                added[row, place - 1, torch.tensor(ids.tolist())] = 0.0
    return added


def padded(sequences: Sequence[Sequence[int]]) -> Tensor:
    """Return int64 [rows, tokens], padded with 0 on the right."""
    longest = max(map(len, sequences))
    rows = [[*sequence, *[0] * (longest - len(sequence))] for sequence in sequences]
    return torch.tensor(rows, dtype=torch.int64)
