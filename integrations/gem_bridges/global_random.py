"""Global random generators that belong to one environment.

Environments of other packages draw from ``random`` and ``numpy.random``, which everything in a
process shares. Here each of them has its own state of both, which is in place only during a call.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

_LOCK = threading.RLock()
"""Held during every call of an environment that may use the global generators."""


class GlobalRandom:
    """The state of the global generators as one environment sees it.

    Calls of all environments with such a state follow one another, also in threads: worker
    processes play them at the same time. Code elsewhere that draws from the global generators
    while a call runs in another thread is not protected.
    """

    def __init__(self, seed: int) -> None:
        with _LOCK:
            before = _read()
            random.seed(seed)
            np.random.seed(seed)
            self._state = _read()
            _write(before)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Put the state in place for a call, and what was there back after it."""
        with _LOCK:
            before = _read()
            _write(self._state)
            try:
                yield
            finally:
                self._state = _read()
                _write(before)


def _read() -> tuple[Any, Any]:
    return random.getstate(), np.random.get_state()


def _write(state: tuple[Any, Any]) -> None:
    random.setstate(state[0])
    np.random.set_state(state[1])
