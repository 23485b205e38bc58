"""How many episodes of a batch failed, and whether these are too many to train on the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gem_core.errors import GemError

if TYPE_CHECKING:
    from gem_core.episodes.data import Episode


def failed_fraction(episodes: Sequence[Episode]) -> float:
    """Return the fraction of episodes that failed (environment error, deadline, abort)."""
    return sum(e.stop_reason.failed for e in episodes) / len(episodes) if episodes else 0.0


def require_healthy(episodes: Sequence[Episode], max_failed: float = 0.5) -> None:
    """Check that not too many episodes of a batch failed.

    Args:
        episodes: the episodes of the batch.
        max_failed: the largest fraction of them that may have failed.

    Raises:
        GemError: more episodes failed; the message has the most frequent reason, and the first.
    """
    share = failed_fraction(episodes)
    if share > max_failed:
        reasons = Counter(_reason(e) for e in episodes if e.stop_reason.failed)
        reason, count = reasons.most_common(1)[0]
        first = next(iter(reasons))
        also = "" if first == reason else f"; the first: {first}"
        raise GemError(
            f"{share:.0%} of the batch's {len(episodes)} episodes failed; most often "
            f"({count}x): {reason}{also}. Fix the environment, or raise its deadlines."
        )


def _reason(episode: Episode) -> str:
    """Return why an episode failed, without what differs from seed to seed."""
    text = episode.error or episode.stop_reason.value
    return text.replace(f"{episode.env_id}, seed {episode.seed}: ", f"{episode.env_id}: ")
