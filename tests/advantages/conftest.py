"""Random batches, and ranks (threads) that wait for each other as in a real all-reduce."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gem_core.advantages import TurnBatch


def _ragged(seed: int, *, episodes: int | None = None, envs: int = 3) -> list[dict[str, Any]]:
    """Draw episodes as plain Python: rewards, values, bootstrap, group, env."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 13)) if episodes is None else episodes
    sparse = rng.random() < 0.3  # terminal reward only, as in most games
    out = []
    for _ in range(count):
        turns = int(rng.integers(1, 9))
        rewards = rng.choice([-0.1, 0.0, 0.2, 0.5, 1.0], size=turns) * rng.choice([1.0, 3.7])
        if sparse:
            rewards[:-1] = 0.0
        group = int(rng.integers(0, 4))
        out.append(
            {
                "rewards": rewards.tolist(),
                "values": rng.normal(size=turns).tolist(),
                "bootstrap": float(rng.normal()) if rng.random() < 0.5 else 0.0,
                "group": group,
                "env": group % envs,
            }
        )
    return out


def _batch(episodes: list[dict[str, Any]]) -> TurnBatch:
    return TurnBatch.from_episodes(
        [e["rewards"] for e in episodes],
        groups=[e["group"] for e in episodes],
        envs=[e["env"] for e in episodes],
        values=[e["values"] for e in episodes],
        bootstraps=[e["bootstrap"] for e in episodes],
    )


class Ranks:
    """``k`` threads with a real all-reduce: a rank that does not call makes the others fail."""

    def __init__(self, k: int) -> None:
        self.k = k
        self.slots: list[Any] = [None] * k
        self.barrier = threading.Barrier(k, timeout=20)
        self.calls = [0] * k
        self.dtypes: set[np.dtype[Any]] = set()

    def reduce_of(self, rank: int) -> Callable[[np.ndarray], np.ndarray]:
        def reduce(array: np.ndarray) -> np.ndarray:
            self.calls[rank] += 1
            self.dtypes.add(array.dtype)
            self.slots[rank] = array
            self.barrier.wait()
            total = np.sum(np.stack(self.slots), axis=0)
            self.barrier.wait()
            return total

        return reduce

    def run(self, work: Callable[[int, Callable[..., Any]], Any]) -> list[Any]:
        """Run ``work(rank, reduce)`` on all ranks; an exception becomes that rank's result."""
        results: list[Any] = [None] * self.k

        def main(rank: int) -> None:
            try:
                results[rank] = work(rank, self.reduce_of(rank))
            except Exception as error:
                results[rank] = error

        threads = [threading.Thread(target=main, args=(r,)) for r in range(self.k)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return results


@pytest.fixture
def ragged() -> Callable[..., list[dict[str, Any]]]:
    return _ragged


@pytest.fixture
def as_batch() -> Callable[[list[dict[str, Any]]], TurnBatch]:
    return _batch


@pytest.fixture
def make_ranks() -> Callable[[int], Ranks]:
    return Ranks
