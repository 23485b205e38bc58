"""`TurnBatch`: the arrays that every estimator reads, with one entry per turn."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from itertools import pairwise
from typing import Any, Concatenate, ParamSpec

import numpy as np
import numpy.typing as npt

from gem_core.advantages._arrays import (
    DTYPES,
    BoolArray,
    FloatArray,
    IntArray,
    as_array,
    check_adjacent,
    check_same_within,
    dense_ids,
)
from gem_core.advantages.turns import Span, runs_of_ones
from gem_core.errors import AdvantageError

P = ParamSpec("P")


@dataclass(frozen=True, eq=False)
class TurnBatch:
    """The N turns of a batch of episodes, one array entry per turn.

    The turns of an episode are next to each other, in time order. Arrays are copied, converted to
    the dtype below and made read-only; wrong shapes, dtypes or non-finite numbers raise.

    Attributes:
        rewards: float64 [N], reward of each turn.
        episode: int64 [N], episode of each turn.
        group: int64 [N], initial state of each turn's episode (the group of GRPO and RLOO).
            ``None`` means that every episode is its own group.
        env: int64 [N], environment of each turn's episode; read by ``per_env`` normalisation.
        values: float64 [N], V(s_t), the critic's value at the last prompt token of the turn.
        bootstrap: float64 [N], read only at the last turn of an episode: V(s_T) when the episode
            was truncated from outside, 0 when it terminated. ``None`` means 0 everywhere.
        mask: bool [N], ``False`` for padding and aborted turns. They are left out of statistics
            and recursions, as if they were not in the batch, and get the advantage 0. The entries
            of the other arrays are ignored there.

    Raises:
        AdvantageError: an array is malformed, an episode is scattered over the batch, or the turns
            of one episode disagree about their group or environment.
    """

    rewards: FloatArray
    episode: IntArray
    group: IntArray | None = None
    env: IntArray | None = None
    values: FloatArray | None = None
    bootstrap: FloatArray | None = None
    mask: BoolArray | None = None

    def __post_init__(self) -> None:
        n = as_array("rewards", self.rewards, np.dtype(np.float64)).shape[0]
        for field in fields(self):
            data = getattr(self, field.name)
            if data is None and field.name not in ("rewards", "episode"):
                continue
            array = as_array(field.name, data, DTYPES[field.name])
            if array.shape[0] != n:
                raise AdvantageError(
                    f"TurnBatch.{field.name} has {array.shape[0]} entries, rewards has {n}: "
                    "give one entry per turn."
                )
            object.__setattr__(self, field.name, array)
        self._check_contents()

    def _check_contents(self) -> None:
        keep = slice(None) if self.mask is None else self.mask
        for name in ("rewards", "values", "bootstrap"):
            array = getattr(self, name)
            if array is not None and not np.isfinite(array[keep]).all():
                counted = True if self.mask is None else self.mask
                at = np.flatnonzero(~np.isfinite(array) & counted)
                raise AdvantageError(
                    f"TurnBatch.{name} is {array[at[0]]} at turn {at[0]} ({at.size} not finite): "
                    "fix the number, or exclude the turn with mask=False."
                )
        check_adjacent(self.episode[keep])
        for name in ("group", "env"):
            array = getattr(self, name)
            if array is not None:
                check_same_within(name, array[keep], self.episode[keep])

    def __len__(self) -> int:
        return int(self.rewards.shape[0])

    @property
    def group_ids(self) -> IntArray:
        """The array ``group``, or ``episode`` where there is no group; int64 [N]."""
        return self.episode if self.group is None else self.group

    @property
    def starts(self) -> BoolArray:
        """Which turns are the first of their episode, bool [N]; only for a batch without a mask."""
        if self.mask is not None:
            raise AdvantageError(
                "A batch with a mask has no fixed first and last turns: use batch.valid() first."
            )
        return np.concatenate(([True], self.episode[1:] != self.episode[:-1]))[: len(self)]

    @property
    def ends(self) -> BoolArray:
        """Which turns are the last of their episode, bool [N]; only for a batch without a mask."""
        return np.concatenate((self.starts[1:], [True]))[: len(self)]

    def valid(self) -> TurnBatch:
        """Return the batch without its masked turns (the batch itself where nothing is masked)."""
        if self.mask is None:
            return self
        kept: dict[str, Any] = {}
        for field in fields(self):
            array = getattr(self, field.name)
            kept[field.name] = None if array is None else array[self.mask]
        return TurnBatch(**{**kept, "mask": None})

    def by_episode(self, per_turn: npt.NDArray[Any]) -> dict[int, npt.NDArray[Any]]:
        """Split a per-turn array [N] into ``{episode: array [turns]}``, including masked turns."""
        per_turn = np.asarray(per_turn)
        if per_turn.shape[:1] != (len(self),):
            raise AdvantageError(f"by_episode got shape {per_turn.shape} for {len(self)} turns.")
        rows: dict[int, list[int]] = {}
        for index, episode in enumerate(self.episode.tolist()):
            rows.setdefault(episode, []).append(index)
        return {episode: per_turn[index] for episode, index in rows.items()}

    @classmethod
    def from_episodes(
        cls,
        rewards: Sequence[Sequence[float]],
        groups: Sequence[Hashable] | None = None,
        envs: Sequence[int] | None = None,
        values: Sequence[Sequence[float]] | None = None,
        bootstraps: Sequence[float] | None = None,
    ) -> TurnBatch:
        """Build a batch from per-episode lists; episode ``i`` of the list gets the id ``i``.

        Args:
            rewards: one list of turn rewards per episode. An episode without turns adds nothing.
            groups: one label per episode, of any hashable type (labels that are not all integers
                are numbered in order of appearance).
            envs: one environment id per episode, the same numbering on every rank.
            values: one list of turn values per episode.
            bootstraps: one V(s_T) per episode, 0 where the episode terminated.

        >>> TurnBatch.from_episodes([[0.0, 1.0], [0.5]]).episode.tolist()
        [0, 0, 1]
        """
        lengths = np.array([len(turns) for turns in rewards], dtype=np.int64)
        per_episode = {
            "groups": groups,
            "envs": envs,
            "values": values,
            "bootstraps": bootstraps,
        }
        for name, entries in per_episode.items():
            if entries is not None and len(entries) != len(rewards):
                raise AdvantageError(
                    f"from_episodes got {len(entries)} {name} for {len(rewards)} episodes."
                )
        if values is not None:
            _check_one_value_per_turn(lengths, values)
        return cls(
            rewards=_flat(rewards),
            episode=np.repeat(np.arange(len(rewards), dtype=np.int64), lengths),
            group=None if groups is None else np.repeat(dense_ids(groups), lengths),
            env=None if envs is None else np.repeat(np.asarray(envs), lengths),
            values=None if values is None else _flat(values),
            bootstrap=None if bootstraps is None else np.repeat(_flat([bootstraps]), lengths),
        )

    @classmethod
    def from_token_rows(
        cls,
        rewards: npt.ArrayLike,
        response_mask: npt.ArrayLike | None = None,
        *,
        spans: Sequence[Sequence[Span]] | None = None,
        groups: Sequence[Hashable] | None = None,
        envs: Sequence[int] | None = None,
        values: npt.ArrayLike | None = None,
        bootstraps: Sequence[float] | None = None,
    ) -> tuple[TurnBatch, list[list[Span]]]:
        """Read the turns out of token-level arrays, one row per episode.

        The reward of a turn is the sum of its row from the turn's first action token up to the
        next turn's first action token, so a reward that sits on an observation token is not lost.

        Args:
            rewards: float [B, T], token-level rewards.
            response_mask: [B, T], 1 on action tokens. Its runs of ones are the turns; a row of
                zeros (padding) has none. Two turns with no 0 between them cannot be told apart:
                give ``spans`` then.
            spans: the turns' action tokens as ``(start, end)`` per row, instead of the mask.
            groups: one label per row.
            envs: one environment id per row.
            values: float [B, T], V before each token; read at the first action token of a turn,
                which is the value at the turn's last prompt token.
            bootstraps: one V(s_T) per row.

        Returns:
            The batch (row ``i`` is episode ``i``) and the spans per row, as `spread_rows` takes
            them.

        Raises:
            AdvantageError: a row has reward before its first turn, or reward but no turn.
        """
        table = np.asarray(rewards, dtype=np.float64)
        if table.ndim != 2:
            raise AdvantageError(
                f"from_token_rows needs rewards [rows, tokens], got {table.shape}."
            )
        turns = _spans_of_rows(table.shape, response_mask, spans)
        batch = cls.from_episodes(
            [_turn_sums(i, row, turns[i]) for i, row in enumerate(table)],
            groups=groups,
            envs=envs,
            values=None if values is None else _turn_values(values, table.shape, turns),
            bootstraps=bootstraps,
        )
        return batch, turns


def on_valid_turns(
    estimator: Callable[Concatenate[TurnBatch, P], FloatArray],
) -> Callable[Concatenate[TurnBatch, P], FloatArray]:
    """Decorate an estimator so that it gets no masked turns; those have the advantage 0."""

    @wraps(estimator)
    def masked(batch: TurnBatch, /, *args: P.args, **kwargs: P.kwargs) -> FloatArray:
        if batch.mask is None:
            return estimator(batch, *args, **kwargs)
        out = np.zeros(len(batch))
        out[batch.mask] = estimator(batch.valid(), *args, **kwargs)
        return out

    return masked


def _flat(lists: Sequence[Sequence[float]]) -> FloatArray:
    return np.array([number for row in lists for number in row], dtype=np.float64)


def _check_one_value_per_turn(lengths: IntArray, values: Sequence[Sequence[float]]) -> None:
    for episode, (turns, estimated) in enumerate(zip(lengths, values, strict=True)):
        if len(estimated) != turns:
            raise AdvantageError(
                f"from_episodes: episode {episode} has {turns} rewards but {len(estimated)} "
                "values; give one value per turn."
            )


def _spans_of_rows(
    shape: tuple[int, ...],
    response_mask: npt.ArrayLike | None,
    spans: Sequence[Sequence[Span]] | None,
) -> list[list[Span]]:
    if (response_mask is None) == (spans is None):
        raise AdvantageError("from_token_rows needs exactly one of response_mask and spans.")
    if spans is not None:
        if len(spans) != shape[0]:
            raise AdvantageError(f"from_token_rows got spans of {len(spans)} rows for {shape[0]}.")
        return [list(row) for row in spans]
    mask = np.asarray(response_mask)
    if mask.shape != shape:
        raise AdvantageError(
            f"from_token_rows: response_mask {mask.shape} and rewards {shape} differ."
        )
    return [runs_of_ones(row) for row in mask]


def _turn_values(
    values: npt.ArrayLike, shape: tuple[int, ...], turns: list[list[Span]]
) -> list[list[float]]:
    """Return the value at the first action token of each turn of each row."""
    table = np.asarray(values, dtype=np.float64)
    if table.shape != shape:
        raise AdvantageError(f"from_token_rows: values {table.shape} and rewards {shape} differ.")
    return [
        [float(row[start]) for start, _ in spans] for row, spans in zip(table, turns, strict=True)
    ]


def _turn_sums(index: int, row: FloatArray, spans: list[Span]) -> list[float]:
    """Return the reward of each turn of one row; no reward may lie before the first turn."""
    first = spans[0][0] if spans else row.size
    if np.any(row[:first] != 0):
        raise AdvantageError(
            f"Row {index} has reward before its first action token"
            + ("." if spans else " (it has no action token).")
            + " Place each turn's reward on one of its action tokens."
        )
    bounds = [start for start, _ in spans] + [row.size]
    return [float(row[a:b].sum()) for a, b in pairwise(bounds)]
