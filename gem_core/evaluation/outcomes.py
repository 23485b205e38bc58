"""Success of every task of an evaluation as a short text, so that evaluations can be paired.

``"0110"``: the second and the third task of four succeeded. The tasks are in the order of a run's
evaluation (`gem_core.runs.tasks.eval_task`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

from gem_core.errors import GemError
from gem_core.runs.directory.files import append_line
from gem_core.runs.directory.run_dir import RunDir

FILE = "outcomes.jsonl"
"""In a run directory: a line for each evaluation before and after training."""


class TaskOutcome(msgspec.Struct, frozen=True):
    """A line of the file."""

    when: str
    """``before`` or ``after`` training."""
    greedy: bool
    """With the most likely tokens (``eval.greedy``); otherwise sampled as the recipe says."""
    engine: str
    """Name and version of what played."""
    success: str
    """Success of every task."""


def add_outcome(run: RunDir, outcome: TaskOutcome) -> None:
    """Append a line to the file of a run."""
    append_line(run.path / FILE, msgspec.to_builtins(outcome))


def read_outcomes(run: RunDir) -> dict[tuple[str, bool], TaskOutcome]:
    """Return the outcomes of a run by ``when`` and ``greedy``; of a repeated one the last.

    A run of a version without the file has none.

    Raises:
        RunError: the file is damaged.
    """
    lines = (msgspec.convert(line, TaskOutcome) for line in run.lines(FILE, TaskOutcome))
    return {(line.when, line.greedy): line for line in lines}


def as_text(successes: Iterable[bool]) -> str:
    """Return the text of the tasks' successes.

    >>> as_text([False, True])
    '01'
    """
    return "".join("1" if success else "0" for success in successes)


def task_means(samples: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the share of successes of each task, float64 [tasks], of one text per sample.

    Raises:
        GemError: there is no sample or no task, or a text has another length or other characters.

    >>> task_means(["01", "11"]).tolist()
    [0.5, 1.0]
    """
    lengths = {len(text) for text in samples}
    if len(lengths) != 1 or 0 in lengths or set().union(*samples) - {*"01"}:
        raise GemError("Outcomes are texts of 0 and 1, one for each sample, all of one length.")
    table = np.array([[character == "1" for character in text] for text in samples], dtype=float)
    return np.asarray(table.mean(axis=0))
