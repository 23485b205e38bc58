"""Groups whose episodes have ended, which `gem_core.episodes.rollouts` gives, and their counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gem_core.episodes.data import Episode


@dataclass(frozen=True, slots=True)
class EndedGroup:
    """A group whose episodes have all ended.

    Attributes:
        episodes: its episodes, in the order of its machines.
        number: how many groups were begun before it.
        began: number of the batch, from 1, in which it began.
        ended: number of the batch that it belongs to.
    """

    episodes: list[Episode]
    number: int
    began: int
    ended: int


@dataclass(slots=True)
class RolloutCounts:
    """What happened to all groups so far.

    ``begun = returned + cancelled + stale + those under way``, unless an error ended all.

    Attributes:
        begun: groups that were begun.
        returned: groups that belong to a batch.
        cancelled: groups that were given up because a batch had enough.
        stale: groups that were given up because they were carried over too often.
        carried: of those returned, groups that began in an earlier batch than they ended in.
    """

    begun: int = 0
    returned: int = 0
    cancelled: int = 0
    stale: int = 0
    carried: int = 0

    def metrics(self) -> dict[str, float]:
        """Return the shares that tell how large the bias of `Rollouts` can be."""
        over = self.returned + self.cancelled + self.stale
        return {
            "rollouts/cancelled": (self.cancelled + self.stale) / over if over else 0.0,
            "rollouts/carried": self.carried / self.returned if self.returned else 0.0,
        }
