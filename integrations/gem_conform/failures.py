"""What a check raises."""

from __future__ import annotations

from gem_core.errors import GemError


class NotConforming(GemError):
    """The trainer does not keep what the check is about; the message says where and by how much."""


class NotApplicable(GemError):
    """There is nothing to check; the message says what is missing, or what makes it needless."""


def require_none(what: str, found: object) -> None:
    """Fail where there is something that should not be.

    Args:
        what: stands before it in the message.
        found: a collection, empty where all is well.

    Raises:
        NotConforming: it is not.
    """
    if found:
        raise NotConforming(f"{what}: {found}")
