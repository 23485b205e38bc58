"""The table of all tasks in the shell."""

from __future__ import annotations

from gem_core.envs.task_table import task_table
from gem_core.envs.terminal import file_tasks, git_tasks, program_tasks, text_tasks

TASKS = task_table(
    {
        "files": file_tasks.TASKS,
        "text": text_tasks.TASKS,
        "git": git_tasks.TASKS,
        "programs": program_tasks.TASKS,
    }
)
"""Name -> task."""
