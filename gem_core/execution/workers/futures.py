"""How calls get their results: callables for the pool's thread.

They are called without the lock of the pool, because what waits for a call may take other locks.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

from gem_core.env.remote.outcome import Outcome
from gem_core.errors import error_line
from gem_core.execution.workers.records import WorkerCall


def with_result(call: WorkerCall, facts: bytes | None, result: bytes) -> Callable[[], None]:
    """Return what gives a call the result and the facts that its worker sent, both pickles."""
    return partial(_set_result, call.future, facts, result)


def with_error(call: WorkerCall, error: BaseException) -> Callable[[], None]:
    """Return what makes a call raise an error."""
    return partial(call.future.set_exception, error)


def without_result(call: WorkerCall) -> Callable[[], None]:
    """Return what ends a call whose result nobody waits for."""
    return partial(call.future.set_result, (None, None))


def _set_result(future: Outcome[Any], facts: bytes | None, result: bytes) -> None:
    try:
        value = pickle.loads(result), None if facts is None else pickle.loads(facts)
    except BaseException as error:  # classes of the environment, in the thread of the pool
        text = f"what the environment returned cannot be read here: {error_line(error)}"
        future.set_exception(TypeError(text))
    else:
        future.set_result(value)
