"""What can go wrong with an environment that lives in a worker."""

from __future__ import annotations

from typing import Any

from gem_core.errors import GemError, place_of, text_of


class WorkerDiedError(GemError, RuntimeError):
    """The worker of an environment ended in the middle of a call."""


class WorkerPoolError(GemError, RuntimeError):
    """The pool of workers cannot be used any more, whatever the environment."""


class EnvDeadlineError(GemError, TimeoutError):
    """A call of an environment took too long; its worker was ended.

    Attributes:
        seconds: how long it was allowed to take.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the environment did not answer within {seconds:g} s")
        self.seconds = seconds


class RemoteError(Exception):
    """An exception of an environment in a worker.

    `remote_error` gives it the class name of the original, so that an episode's error reads the
    same wherever its environment lives.

    Attributes:
        remote_traceback: the worker's traceback as text.
        place: where it was raised, see `gem_core.errors.place_of`.
    """

    remote_traceback: str = ""
    place: str = ""


def describe_error(error: BaseException) -> dict[str, Any]:
    """Return what is known of an exception as plain data, for `remote_error`."""
    import traceback

    kind = type(error).__name__
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return {
        "kind": kind,
        "message": text_of(error),
        "traceback": text,
        "place": remote_place(error),
    }


def remote_error(described: dict[str, Any]) -> RemoteError:
    """Return an exception whose class name and message are those of the original."""
    name = described["kind"]
    kind = type(name if name.isidentifier() else "RemoteError", (RemoteError,), {})
    error: RemoteError = kind(described["message"])
    error.remote_traceback = described["traceback"]
    error.place = described["place"]
    return error


def remote_place(error: BaseException) -> str:
    """Return where an exception was raised, here or where its environment lives."""
    return error.place if isinstance(error, RemoteError) else place_of(error)
