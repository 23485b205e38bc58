"""The worker process of `gem_core.envs.graders.pool`.

It reads jobs from its standard input and writes replies to its original standard output, each as
eight bytes of length followed by JSON. Libraries that print cannot interfere: descriptor 1 is
redirected to /dev/null before the target is imported.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from importlib import import_module
from typing import Any, BinaryIO

from gem_core.errors import error_line


def main(target: str, memory_mb: int) -> None:
    """Serve until the parent closes the pipe."""
    replies = os.fdopen(os.dup(1), "wb")
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    jobs = sys.stdin.buffer
    try:
        module, _, name = target.partition(":")
        function = getattr(import_module(module), name)
    except BaseException as error:  # an exit is a failure like others
        _send(replies, {"error": error_line(error)})
        return
    _limit(memory_mb)
    _send(replies, {"result": "ready"})
    while header := jobs.read(8):
        message = json.loads(jobs.read(int.from_bytes(header, "big")))
        # If the parent has ended, the kernel kills a worker that hangs.
        signal.setitimer(signal.ITIMER_REAL, 2 * message["deadline_s"] + 5)
        try:
            reply = {"result": function(message["job"])}
        except BaseException as error:
            reply = {"error": f"{error_line(error):.500}"}
        signal.setitimer(signal.ITIMER_REAL, 0)
        _send(replies, reply)


def _limit(memory_mb: int) -> None:
    size = memory_mb << 20
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    if hard != resource.RLIM_INFINITY:
        size = min(size, hard)
    resource.setrlimit(resource.RLIMIT_AS, (size, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _send(replies: BinaryIO, message: Any) -> None:
    try:
        body = json.dumps(message).encode()
    except (TypeError, ValueError) as error:
        body = json.dumps({"error": f"The result is not JSON: {error}"}).encode()
    replies.write(len(body).to_bytes(8, "big") + body)
    replies.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
