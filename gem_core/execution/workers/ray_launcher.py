"""The actor that starts a worker process on its node of a Ray cluster, and ends it.

The environments are not in the actor itself: a process of their own can be ended with all that it
started, and be replaced, and imports nothing of Ray.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from gem_core.execution.workers.process import end_session

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop()); "
    "from gem_core.execution.workers.child import connect; connect()"
)


class Launcher:
    """Starts one worker process; the kernel ends it with the actor."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(
        self,
        address: tuple[str, int],
        token: str,
        path: Sequence[str],
        variables: Mapping[str, str],
    ) -> int:
        """Start the process, which connects to the pool by the token; return its id.

        ``path`` is where the pool's process finds modules; those of this node follow. ``variables``
        of its environment differ from the actor's.
        """
        places = list(dict.fromkeys([*path, *sys.path]))
        arguments = [address[0], str(address[1]), str(os.getpid()), json.dumps(places)]
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *arguments],
            stdin=subprocess.PIPE,
            env={**threads, **os.environ, **variables},
            start_new_session=True,
        )
        assert self._process.stdin is not None  # a pipe, see above
        with self._process.stdin as pipe:  # other users of the machine can read arguments
            pipe.write(token.encode())
        return self._process.pid

    def end(self, ended: bool) -> str:
        """End the process with everything that it started; see `Channel.kill`."""
        if self._process is None:
            return "it was not started"
        return end_session(self._process, ended=ended)
