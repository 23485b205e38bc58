"""What the end of an episode changes in its record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core.env.remote.errors import EnvDeadlineError, remote_place
from gem_core.episodes.data import StopReason
from gem_core.errors import error_line

if TYPE_CHECKING:
    from gem_core.episodes.data import Episode, Turn


def end_episode(
    episode: Episode,
    reason: StopReason,
    error: str | None,
    *,
    unanswered: Turn | None = None,
    train_on_failed: bool = False,
) -> None:
    """Fill in the end of an episode.

    ``unanswered`` is its last turn, if the environment has returned no result for it.
    """
    episode.stop_reason = reason
    episode.error = error
    trim(episode)
    if episode.turns:
        last = episode.turns[-1]
        last.truncated = last.truncated or reason.truncated
        told = episode.acts[-1].info if last.kind == "summary" else last.info
        episode.success = not reason.failed and bool(told.get("success", False))
    if reason.failed:
        if unanswered is not None:
            exclude_turn(episode, unanswered)
        if not train_on_failed:
            episode.exclude()


def trim(episode: Episode) -> None:
    """Remove context that no action follows, so that a segment ends on an action token."""
    segments = episode.segments
    while len(segments) > 1 and not segments[-1].spans:
        segments.pop()
    if segments and segments[-1].spans:
        segment = segments[-1]
        end = segment.spans[-1][2]
        del segment.token_ids[end:]
        del segment.loss_mask[end:]
        if segment.logprobs is not None:
            del segment.logprobs[end:]
        if segment.support is not None:
            del segment.support[end:]


def exclude_turn(episode: Episode, turn: Turn) -> None:
    """Exclude an action for which the environment returned no result: it has no reward."""
    turn.aborted = True
    for segment in episode.segments[-1:]:
        for number, start, end in segment.spans:
            if number == turn.index:
                segment.loss_mask[start:end] = [0] * (end - start)


def describe_failure(error: BaseException) -> tuple[StopReason, str]:
    """Return why an episode ends whose environment raised ``error``, and the error as one line."""
    if isinstance(error, EnvDeadlineError):
        return StopReason.DEADLINE, str(error)
    return StopReason.ENV_ERROR, f"{error_line(error)}{remote_place(error)}"


def record_close_error(episode: Episode, error: BaseException) -> None:
    """Record that the environment could not be closed, unless the episode has an error already."""
    episode.error = episode.error or f"close: {error_line(error)}{remote_place(error)}"
