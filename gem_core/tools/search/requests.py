"""One HTTP request with a deadline for all of it, and retries until then."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from typing import Any

from gem_core.tools.search.documents import SearchError

_MOST_BYTES = 16 << 20
_FIRST_PAUSE = 0.05


def ask_json(
    request: urllib.request.Request, deadline: float, retries: int, *, proxies: bool
) -> Any:
    """Return the JSON of an answer.

    Connections that fail, answers 429 and 5xx, and answers that are not JSON are tried again, with
    pauses that double; other answers are final.

    Args:
        request: the request.
        deadline: of all attempts together, on the clock `time.monotonic`.
        retries: attempts after the first.
        proxies: whether the proxies of the environment are used.

    Raises:
        SearchError: no attempt succeeded.
    """
    pause = _FIRST_PAUSE
    for attempt in range(retries + 1):
        try:
            return json.loads(_read(request, deadline, proxies))
        except SearchError:
            raise
        except urllib.error.HTTPError as error:
            error.close()
            failure = SearchError("unavailable", f"the server answered {error.code}")
            if error.code != 429 and error.code < 500:
                raise failure from None
        except ValueError:
            failure = SearchError("bad_response", "the server's answer is not JSON")
        except TimeoutError:
            raise _timeout() from None
        except OSError as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                raise _timeout() from None
            failure = SearchError("unavailable", f"the server cannot be reached ({reason})")
        if attempt == retries or time.monotonic() + pause >= deadline:
            break
        time.sleep(pause)
        pause *= 2
    raise failure


def _read(request: urllib.request.Request, deadline: float, proxies: bool) -> bytes:
    """Return the body; the deadline holds for a server that sends it drop by drop, too."""
    handlers = [] if proxies else [urllib.request.ProxyHandler({})]
    opener = urllib.request.build_opener(*handlers)
    body = b""
    with opener.open(request, timeout=_left(deadline)) as answer:
        while block := answer.read1(1 << 16):
            body += block
            _left(deadline)
            if len(body) > _MOST_BYTES:
                raise SearchError("bad_response", "the server's answer is too long")
    return body


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise _timeout()
    return left


def _timeout() -> SearchError:
    return SearchError("timeout", "the server did not answer in time")
