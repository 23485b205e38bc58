"""The table of all tasks in the shell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from gem_core.envs.terminal import file_tasks, git_tasks, program_tasks, text_tasks
from gem_core.envs.terminal.problem import TerminalProblem
from gem_core.errors import unknown


class TerminalTask(NamedTuple):
    """A kind of task.

    Attributes:
        name: its name.
        group: ``"files"``, ``"text"``, ``"git"`` or ``"programs"``.
        draw: draws a problem.
    """

    name: str
    group: str
    draw: Callable[[Random], TerminalProblem]


def _list_tasks() -> dict[str, TerminalTask]:
    groups = {
        "files": file_tasks.TASKS,
        "text": text_tasks.TASKS,
        "git": git_tasks.TASKS,
        "programs": program_tasks.TASKS,
    }  # fmt: skip
    return {
        draw.__name__: TerminalTask(draw.__name__, group, draw)
        for group, draws in groups.items()
        for draw in draws
    }


TASKS = _list_tasks()
"""Name -> task."""
GROUPS = tuple(dict.fromkeys(task.group for task in TASKS.values()))
"""The groups of tasks."""


def tasks_of(group: str | None, names: Sequence[str] | None) -> list[TerminalTask]:
    """Return the tasks of a group, or those with the given names.

    Raises:
        UnknownNameError: there is no such group or task.
    """
    if names:
        for name in names:
            if name not in TASKS:
                raise unknown("task", name, TASKS, f"There are {', '.join(TASKS)}.")
        return [TASKS[name] for name in names]
    if group is not None and group not in GROUPS:
        raise unknown("group of tasks", group, GROUPS, f"There are {', '.join(GROUPS)}.")
    return [task for task in TASKS.values() if group in (None, task.group)]
