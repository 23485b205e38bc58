"""What a job asks of the cluster: the options of ``gem-core submit`` as parameters of submitit.

Values become lines of a batch script: what is not printable, such as the end of a line, is refused.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", re.ASCII)
_MEMORY = re.compile(r"([1-9]\d*)([MGT])B?", re.ASCII | re.IGNORECASE)
_KEY = re.compile(r"[a-z][a-z0-9-]*", re.ASCII)
_ONE_NODE = "a cell is one process on one node"
_OWN = "gem-core submit needs its own"
_TAKEN = {
    "array": "use --at-most for cells at a time",
    "cpus-per-task": "use --cpus",
    "error": _OWN,
    "gpus": "use --gpus",
    "gpus-per-node": "use --gpus",
    "mem": "use --mem",
    "nodes": _ONE_NODE,
    "ntasks": _ONE_NODE,
    "ntasks-per-node": _ONE_NODE,
    "open-mode": _OWN,
    "output": _OWN,
    "parsable": _OWN,
    "partition": "use --partition",
    "signal": "use --notice",
    "time": "use --time",
    "wait": "use --wait of gem-core submit",
    "wrap": _OWN,
}
"""Options of sbatch that ``--slurm`` does not take, and why."""
LONGEST_NOTICE_S = 600
"""Seconds before the time limit, unless they are given: as in docs/commands_gpu.md."""
_YEAR_MIN = 365 * 24 * 60


def read_time(text: str) -> int:
    """Read a time limit as sbatch has it; return minutes, rounded up.

    Raises:
        argparse.ArgumentTypeError: it is none, or zero.

    >>> [read_time(text) for text in ("90", "1:30", "24:00:00", "2-12", "1-0:30")]
    [90, 2, 1440, 3600, 1470]
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time limit: write minutes, hours:minutes:seconds or days-hours"
        )
    days, *rest = match.groups()
    parts = [int(part) for part in rest if part is not None]
    if days is None and len(parts) < 3:
        parts = [0, *parts]  # minutes, or minutes and seconds
    hours, minutes, seconds = [*parts, 0, 0][:3]
    whole = 86400 * int(days or 0) + 3600 * hours + 60 * minutes + seconds
    if not whole:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: a job needs some")
    return -(-whole // 60)


def read_memory(text: str) -> str:
    """Read an amount of memory. The unit is needed: a number alone is megabytes in Slurm.

    Raises:
        argparse.ArgumentTypeError: it is none.

    >>> read_memory("64gb")
    '64G'
    """
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no memory: write it with M, G or T, as 64G")
    return f"{match[1]}{match[2].upper()}"


def read_name(text: str) -> str:
    """Read the name of a partition.

    Raises:
        argparse.ArgumentTypeError: it is empty, or not printable.
    """
    if not text or not text.isprintable():
        raise argparse.ArgumentTypeError(f"{text!r} is empty or not printable")
    return text


def read_option(text: str) -> tuple[str, str | bool]:
    """Read ``KEY=VALUE`` or ``KEY``, a long option of sbatch; one without a value is ``True``.

    Raises:
        argparse.ArgumentTypeError: it is none, or one that gem-core sets.

    >>> read_option("mail-type=END"), read_option("exclusive")
    (('mail-type', 'END'), ('exclusive', True))
    """
    key, sign, value = text.partition("=")
    key = key.removeprefix("--")
    if not _KEY.fullmatch(key):
        raise argparse.ArgumentTypeError(f"{text!r}: write KEY=VALUE, as account=NAME")
    if key in _TAKEN:
        raise argparse.ArgumentTypeError(f"{key}: {_TAKEN[key]}")
    return key, read_name(value) if sign else True


@dataclass(frozen=True)
class Resources:
    """What each job of a grid asks for.

    Attributes:
        minutes: time limit; ``None`` = none, on this machine only.
        gpus: GPUs; ``None`` = none are asked for.
        cpus: CPUs; ``None`` = what the cluster gives.
        mem: memory with its unit; ``None`` = what the cluster gives.
        partition: partition; ``None`` = the cluster's default.
        at_most: jobs at a time; ``None`` = as many as there are places.
        notice: seconds before the time limit at which a job is told; ``None`` = see `notice_s`.
        restarts: how often a job that reached its limit is queued again.
        options: other long options of sbatch.
    """

    minutes: int | None = None
    gpus: int | None = None
    cpus: int | None = None
    mem: str | None = None
    partition: str | None = None
    at_most: int | None = None
    notice: int | None = None
    restarts: int = 3
    options: Mapping[str, str | bool] = field(default_factory=dict)

    @property
    def limit_min(self) -> int:
        """The time limit, a year where there is none: submitit wants a number."""
        return _YEAR_MIN if self.minutes is None else self.minutes

    @property
    def notice_s(self) -> int:
        """Seconds before the time limit at which a job is told to save and end.

        At most a fifth of the limit: submitit counts a job as timed out, not as preempted, in the
        last fifth, or in the last ten minutes.
        """
        if self.notice is not None:
            return self.notice
        return min(LONGEST_NOTICE_S, 12 * self.limit_min)

    def slurm(self) -> dict[str, Any]:
        """Return the parameters of submitit's executor for Slurm."""
        chosen = {
            "partition": self.partition,
            "gpus_per_node": self.gpus,
            "cpus_per_task": self.cpus,
            "mem": self.mem,
            "array_parallelism": self.at_most,
            # Since Slurm 22.05 a step does not have the CPUs of its job unless it asks for them.
            "srun_args": self.cpus and [f"--cpus-per-task={self.cpus}"],
        }
        return {
            "job_name": "gem-core",
            "time": self.limit_min,
            "nodes": 1,
            "ntasks_per_node": 1,
            "signal_delay_s": self.notice_s,
            "stderr_to_stdout": True,
            **{key: value for key, value in chosen.items() if value is not None},
            # submitit's own keys have underscores; an option given twice would count once.
            "additional_parameters": {
                key.replace("-", "_"): value for key, value in self.options.items()
            },
        }

    def local(self) -> dict[str, Any]:
        """Return the parameters of submitit's executor for processes of this machine."""
        return {
            "timeout_min": self.limit_min,
            "signal_delay_s": self.notice_s,
            "gpus_per_node": self.gpus or 0,
            "stderr_to_stdout": True,
        }
