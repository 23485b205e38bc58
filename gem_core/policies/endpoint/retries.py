"""When requests are sent: pauses after failures, `Retry-After`, a limit of requests per minute."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

import msgspec

_LONG_S = 5.0
"""A pause that is said."""
_log = logging.getLogger(__name__)


class RetryConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How often and when a request is repeated."""

    attempts: int = 8
    """Requests for one completion, the first included."""
    first_pause_s: float = 0.5
    """Mean of the first pause is half of this; each further one is up to twice as long."""
    longest_pause_s: float = 60.0
    """No pause is longer, whatever the server asks for."""


class Pacer:
    """Delays requests for a limit per minute, and all of them while the server asks to wait.

    Args:
        config: when a request is repeated.
        per_minute: requests per minute; ``None`` = no limit.
    """

    def __init__(self, config: RetryConfig, per_minute: float | None = None) -> None:
        self.config = config
        self._interval = 60 / per_minute if per_minute else 0.0
        self._next = 0.0
        self._not_before = 0.0
        # Jitter must differ between processes; it has no influence on any result.
        self._random = random.Random()

    async def wait_for_turn(self) -> None:
        """Return when the next request may be sent."""
        while (pause := self._not_before - time.monotonic()) > 0:
            # Those that waited do not come back at the same moment.
            await asyncio.sleep(pause * (1 + 0.1 * self._random.random()))
        if self._interval:
            now = time.monotonic()
            self._next = max(now, self._next + self._interval)
            if self._next > now:
                await asyncio.sleep(self._next - now)

    async def pause(self, failures: int, asked_s: float | None) -> None:
        """Wait after a failure.

        Args:
            failures: failed requests for this completion so far, at least 1.
            asked_s: seconds that the server asked for; then all requests wait.
        """
        longest = self.config.longest_pause_s
        if asked_s is not None:
            self._tell(asked_s)
            asked_s = min(asked_s, longest)
            self._not_before = max(self._not_before, time.monotonic() + asked_s)
        ceiling = min(longest, self.config.first_pause_s * 2 ** (failures - 1))
        await asyncio.sleep(min(longest, (asked_s or 0.0) + ceiling * self._random.random()))

    def _tell(self, asked_s: float) -> None:
        """Say that all requests wait, if it is for long, and nobody has said so of this pause."""
        waits = min(asked_s, self.config.longest_pause_s)
        if waits < _LONG_S or time.monotonic() + waits < self._not_before + _LONG_S:
            return
        said = "" if asked_s <= waits else f" (it asked for {asked_s:.0f} s)"
        _log.warning("The endpoint asks to wait: no request for %.0f s%s.", waits, said)


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Return the seconds that a server asks to wait: ``retry-after-ms`` or ``Retry-After``.

    Args:
        headers: names in small letters.
        now: seconds since the epoch, for a date; ``None`` = the present.

    Returns:
        ``None`` where there is no such header, or it cannot be read.

    >>> retry_after({"retry-after": "2"})
    2.0
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) / unit
        except (KeyError, ValueError):
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    try:
        when = parsedate_to_datetime(headers["retry-after"]).timestamp()
    except (KeyError, ValueError, TypeError, OverflowError):
        return None
    return max(0.0, when - (time.time() if now is None else now))
