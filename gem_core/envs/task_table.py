"""Kinds of tasks by their names: what the environments that draw one of several tasks share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from gem_core.errors import unknown


class TaskKind(NamedTuple):
    """A kind of task.

    Attributes:
        name: its name, that of the function.
        group: the group that it belongs to.
        draw: draws a problem, given a generator and what else the environment has.
    """

    name: str
    group: str
    draw: Callable[..., Any]


def task_table(groups: Mapping[str, Sequence[Callable[..., Any]]]) -> dict[str, TaskKind]:
    """Return name -> task, given the functions of each group."""
    tasks = (
        TaskKind(draw.__name__, group, draw) for group, draws in groups.items() for draw in draws
    )
    return {task.name: task for task in tasks}


def tasks_of(
    table: Mapping[str, TaskKind], group: str | None, names: Sequence[str] | None
) -> list[TaskKind]:
    """Return the tasks of a group (``None``: all), or those with the given names.

    Raises:
        UnknownNameError: there is no such group or task.
    """
    for name in names or ():
        if name not in table:
            raise unknown("task", name, table, f"There are {', '.join(table)}.")
    if names:
        return [table[name] for name in names]
    groups = tuple(dict.fromkeys(task.group for task in table.values()))
    if group is not None and group not in groups:
        raise unknown("group of tasks", group, groups, f"There are {', '.join(groups)}.")
    return [task for task in table.values() if group in (None, task.group)]
