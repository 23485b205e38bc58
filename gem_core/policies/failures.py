"""Why an item has no result."""

from __future__ import annotations

from gem_core.errors import GemError

KINDS = (
    "rate_limited",
    "server_error",
    "timeout",
    "connection",
    "bad_answer",
    "refused",
    "env_error",
    "tool_timeout",
    "aborted",
    "actions_missing",
    "other_task",
)
"""The kinds of errors of an item. The first six are of an endpoint: it limits the rate, reports an
error of its own, does not answer in time, cannot be reached or cuts the connection, answers what is
no completion, or refuses the request. The next three are those of an episode: the environment
failed, a tool did, or the episode was aborted. The last two are of stored episodes that are scored
again: one continues after its last action, or the environment shows another task."""


class ItemError(GemError):
    """One item has no result; the evaluation continues.

    Args:
        kind: one of `KINDS`.
        message: what happened.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class EndpointError(GemError):
    """No request to the endpoint can succeed; the evaluation stops and can be resumed."""


class EpisodeOver(GemError):
    """The episode ended while the policy was asked; it is a result, and its machine has it."""
