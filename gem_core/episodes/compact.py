"""`Compact`: when a policy is asked to sum up its episode, how, and whether that is trained."""

from __future__ import annotations

import msgspec

from gem_core.episodes.limits import AtLeastOne, require_kinds

PROMPT = (
    "The earlier turns will be removed. Sum up what you need from them to go on: what you know, "
    "what you have tried, and what you want to do next."
)
"""The request for a summary, where none is set."""


class Compact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of ``history = "compact"``."""

    budget: AtLeastOne
    """Tokens that a prompt may have; instead of a longer one the policy gets the request."""
    prompt: str = PROMPT
    """The request, in the place of the observation."""
    max_tokens: AtLeastOne = 256
    """Tokens that the policy may sample in a summary."""
    trained: bool = True
    """Whether summaries are trained on; if not, they are masked and in no statistic."""

    def __post_init__(self) -> None:
        """Check the values. Raises KindError: one is of another kind, or out of its range."""
        require_kinds(self)
