"""What submitit runs on the node: one training as a process, and what becomes of signals.

submitit takes the signal that comes before the time limit (SIGUSR2) and calls
`TrainJob.checkpoint`; SIGTERM, which Slurm sends to a job that is cancelled or makes room for
another one, it only notes. Both reach the training as one SIGTERM: it then saves after its step
and ends, and a second SIGTERM would end it without. Slurm signals the process group of a job, so
the training has one of its own.

No lock of `subprocess` is held while the training runs: a handler of a signal, which runs between
two instructions of the code that it interrupts, waits for the same process.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from gem_compare.processes import end_session
from gem_compare.reasons import failure_reason
from gem_core.errors import RunError
from gem_core.runs.directory.files import open_to_append, write_object
from gem_core.runs.redaction import redact_command, redact_text
from gem_core.training.stopping import EXIT_CODE

LOG = "log.txt"
"""Output of the training, in the run directory; that of a job which goes on is added."""
FAILED = "failed.json"
_STOPPED = (EXIT_CODE, -signal.SIGTERM, -signal.SIGKILL)
"""Exit codes of a training that was ended from outside: it is no failure of its own."""
_LOOK_S = 0.2
_SAVING_SHARE = 0.9
"""Share of the notice for which a checkpoint is waited for; the rest is for the next job."""


class TrainJob:
    """Trains one cell. submitit pickles it when it is submitted, and calls it on the node.

    Args:
        command: the arguments of the process; it starts a run or continues it.
        folder: the run directory.
        cwd: where the process starts, so that relative paths in recipes mean what they meant.
        notice_s: seconds between the signal and the time limit.
    """

    def __init__(self, command: Sequence[str], folder: Path, cwd: Path, notice_s: int) -> None:
        self.command = list(command)
        self.folder = Path(folder)
        self.cwd = Path(cwd)
        self.notice_s = notice_s
        self._pid: int | None = None
        self._asked = False
        self._told = False

    def __call__(self) -> str:
        """Train, and return where the result is.

        Raises:
            RunError: the training failed (`FAILED` has the reason), or was stopped.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / FAILED).unlink(missing_ok=True)
        code = self._run()
        if code == 0 and (self.folder / "result.json").exists():
            return str(self.folder)
        if code in _STOPPED or self._asked:
            raise RunError(f"{self.folder} was stopped; gem-core submit continues it.")
        reason = redact_text(failure_reason(self.folder))
        write_object(self.folder / FAILED, {"reason": reason, "exit_code": code, "log": LOG})
        raise RunError(f"{self.folder} failed: {reason}")

    def checkpoint(self) -> Any:
        """Have the training save and end; return what continues it in the next job.

        submitit calls it in the handler of the signal, and queues the job again.
        """
        from submitit.helpers import DelayedSubmission

        self.ask_to_stop()
        deadline = time.monotonic() + _SAVING_SHARE * self.notice_s
        while time.monotonic() < deadline and not self._has_ended():
            time.sleep(_LOOK_S)
        return DelayedSubmission(TrainJob(self.command, self.folder, self.cwd, self.notice_s))

    def ask_to_stop(self) -> None:
        """Send the training SIGTERM, once; one that is only about to start gets it then."""
        self._asked = True
        if self._pid is not None and not self._told and not self._has_ended():
            self._told = True
            os.kill(self._pid, signal.SIGTERM)

    def _run(self) -> int:
        with os.fdopen(open_to_append(self.folder / LOG), "ab") as log, self._forwarded_sigterm():
            log.write(f"$ {shlex.join(redact_command(self.command))}\n".encode())
            log.flush()
            process = subprocess.Popen(
                self.command,
                cwd=self.cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._pid = process.pid
            try:
                if self._asked:
                    self.ask_to_stop()
                while not self._has_ended():
                    time.sleep(_LOOK_S)
            finally:  # also where submitit ends the job: nothing of it stays on the node
                self._pid = None
                end_session(process.pid)
                code = process.wait()
            return code

    def _has_ended(self) -> bool:
        """Return whether the training has ended, without taking its exit code."""
        if self._pid is None:
            return True
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._pid, options) is not None

    @contextmanager
    def _forwarded_sigterm(self) -> Iterator[None]:
        def forward(number: int, frame: FrameType | None) -> None:
            self.ask_to_stop()

        before = signal.signal(signal.SIGTERM, forward)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)
