"""What the end of an episode changes in its record."""

from __future__ import annotations

from gem_core.episodes.data import Episode, Turn


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


def exclude_turn(episode: Episode, turn: Turn) -> None:
    """Exclude an action for which the environment returned no result: it has no reward."""
    turn.aborted = True
    for segment in episode.segments[-1:]:
        for number, start, end in segment.spans:
            if number == turn.index:
                segment.loss_mask[start:end] = [0] * (end - start)
