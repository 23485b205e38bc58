"""Episodes as rows of a padded token batch, for trainers that keep rows instead of episodes.

Such a trainer may pad, shuffle and drop rows, and an episode whose history is rewritten has several
rows. A `RowLabel` identifies the episode and the turn of each row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt

from gem_core.advantages._arrays import FloatArray
from gem_core.advantages.batch import TurnBatch
from gem_core.advantages.turns import spread_rows
from gem_core.episodes.data import Episode, Segment
from gem_core.errors import AdvantageError, GemError

_MARK = "gem"


class RowLabel(msgspec.Struct, frozen=True, array_like=True, order=True):
    """Identifies a row; labels sort by episode and time, and have a text form for trainers."""

    episode: int
    """Number of the episode in the run."""
    turn: int
    """The first turn in the row."""
    group: int
    """Group of episodes with the same initial state, see `TurnBatch.group`."""
    env: int
    """Position of the environment in the recipe."""
    final: int = 0
    """Tokens from the row's last action token to the one before which a critic values the state in
    which a limit cut the episode; 0 = no such state."""

    def encode(self) -> str:
        """Return the label as text, for trainers that keep only text."""
        return _MARK + msgspec.json.encode(self).decode()


def read_labels(texts: Sequence[object]) -> list[RowLabel]:
    """Return the labels of rows.

    A text that is not a label is an episode of its own; equal texts are one group.

    >>> [label.group for label in read_labels([RowLabel(7, 2, 3, 0).encode(), "a", "b", "a"])]
    [3, 1, 2, 1]
    """
    names = [str(text) for text in texts]
    return [
        msgspec.json.decode(name[len(_MARK) :], type=RowLabel)
        if name.startswith(f"{_MARK}[")
        else RowLabel(row, 0, names.index(name), 0)
        for row, name in enumerate(names)
    ]


def final_values(
    labels: Sequence[RowLabel], mask: npt.ArrayLike, values: npt.ArrayLike
) -> dict[int, float]:
    """Return V of the state in which a limit cut an episode, by number of the episode.

    Args:
        labels: one per row.
        mask: [rows, tokens], not 0 on action tokens.
        values: float [rows, tokens], V before each token.
    """
    used = np.asarray(mask) != 0
    read = np.asarray(values)
    return {
        label.episode: float(read[row, np.flatnonzero(used[row])[-1] + label.final])
        for row, label in enumerate(labels)
        if label.final and used[row].any()
    }


def token_rewards(episode: Episode, segment: Segment) -> list[float]:
    """Return one number per token: the reward of each turn that is trained on, on its last token.

    Raises:
        GemError: two such turns have no token between them, so that rows cannot separate them.
    """
    rewards = [0.0] * len(segment.token_ids)
    trained = [span for span in segment.spans if segment.loss_mask[span[1]]]
    for (_, _, end), (turn, start, _) in pairwise(trained):
        if start == end:
            raise GemError(
                f"Turn {turn} of {episode.env_id} follows the turn before without a token between "
                "them. Use a template with text around observations."
            )
    for turn, _, end in trained:
        rewards[end - 1] = episode.turns[turn].reward
    return rewards


class TokenRows:
    """The turns of token rows, and the mapping from turns back to rows.

    Args:
        labels: one per row; those of rows without an action token are ignored.
        rewards: float [rows, tokens], as in `TurnBatch.from_token_rows`.
        mask: [rows, tokens], not 0 on action tokens; a row of zeros is padding.
        values: float [rows, tokens], V before each token.
        bootstraps: the value of the last state by number of the episode; 0 for missing ones.

    Attributes:
        batch: the turns, episode by episode in the order of the labels.

    Raises:
        AdvantageError: two rows have the same label, or an error of
            `TurnBatch.from_token_rows`.
    """

    def __init__(
        self,
        labels: Sequence[RowLabel],
        rewards: npt.ArrayLike,
        mask: npt.ArrayLike,
        values: npt.ArrayLike | None = None,
        bootstraps: Mapping[int, float] | None = None,
    ) -> None:
        used = np.asarray(mask) != 0
        self._shape = used.shape
        self._rows = sorted(np.flatnonzero(used.any(axis=1)).tolist(), key=labels.__getitem__)
        mine = [labels[row] for row in self._rows]
        if len({(label.episode, label.turn) for label in mine}) < len(mine):
            raise AdvantageError("Two rows of the batch have the same label.")
        batch, self._spans = TurnBatch.from_token_rows(
            np.asarray(rewards)[self._rows],
            used[self._rows],
            groups=[label.group for label in mine],
            envs=[label.env for label in mine],
            values=None if values is None else np.asarray(values)[self._rows],
            bootstraps=None
            if bootstraps is None
            else [bootstraps.get(label.episode, 0.0) for label in mine],
        )
        episodes = np.array([label.episode for label in mine], dtype=np.int64)
        self.batch = replace(batch, episode=episodes[batch.episode])

    def spread(self, per_turn: npt.ArrayLike) -> FloatArray:
        """Put one number per turn of ``batch`` on its action tokens: float64 [rows, tokens]."""
        tokens = np.zeros(self._shape)
        tokens[self._rows] = spread_rows(per_turn, self._spans, self._shape[1])
        return tokens
