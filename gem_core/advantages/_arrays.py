"""Checked arrays: the dtypes of the arrays of `TurnBatch`, and the errors about their contents."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gem_core.errors import AdvantageError

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

DTYPES: dict[str, np.dtype[Any]] = {
    "rewards": np.dtype(np.float64),
    "episode": np.dtype(np.int64),
    "group": np.dtype(np.int64),
    "env": np.dtype(np.int64),
    "values": np.dtype(np.float64),
    "bootstrap": np.dtype(np.float64),
    "mask": np.dtype(np.bool_),
}
_KINDS = {"f": "iuf", "i": "iu", "b": "b"}


def as_array(name: str, data: object, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Copy ``data`` to a read-only 1-d array of ``dtype``; lossy conversions are refused."""
    array = np.asarray(data)
    if array.ndim != 1:
        raise AdvantageError(f"TurnBatch.{name} must have shape [turns], got {array.shape}.")
    if array.size and array.dtype.kind not in _KINDS[dtype.kind]:
        raise AdvantageError(
            f"TurnBatch.{name} must hold {dtype.name} numbers, got dtype {array.dtype}."
        )
    array = array.astype(dtype)
    array.setflags(write=False)
    return array


def check_adjacent(episode: IntArray) -> None:
    """Raise AdvantageError when the turns of an episode are not next to each other."""
    changes = np.flatnonzero(np.concatenate(([True], episode[1:] != episode[:-1]))[: episode.size])
    ids, counts = np.unique(episode[changes], return_counts=True)
    if (counts > 1).any():
        twice = ids[counts > 1][0]
        at = changes[episode[changes] == twice]
        raise AdvantageError(
            f"Episode {twice} appears in {at.size} separate places (turns {at[0]} and {at[1]}): "
            "put the turns of an episode next to each other, in time order."
        )


def check_same_within(name: str, ids: IntArray, episode: IntArray) -> None:
    """Raise AdvantageError when neighbouring turns of one episode have different ``ids``."""
    changes = np.flatnonzero((episode[1:] == episode[:-1]) & (ids[1:] != ids[:-1]))
    if changes.size:
        at = changes[0]
        raise AdvantageError(
            f"Episode {episode[at]} has the {name} ids {ids[at]} and {ids[at + 1]}: "
            f"all turns of an episode have one {name}."
        )


def dense_ids(labels: Sequence[Hashable]) -> IntArray:
    """Convert labels to int64 ids: integers stay, others are numbered in order of appearance.

    >>> dense_ids(["b", "a", "b"]).tolist()
    [0, 1, 0]
    """
    if all(isinstance(label, (int, np.integer)) for label in labels):
        return np.array(list(labels), dtype=np.int64)
    numbers: dict[Hashable, int] = {}
    ids = [numbers.setdefault(label, len(numbers)) for label in labels]
    return np.array(ids, dtype=np.int64)
