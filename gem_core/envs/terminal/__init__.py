"""Tasks in a shell: files, text processing, git and small programs."""

from __future__ import annotations

from gem_core.envs.terminal.env import TerminalEnv
from gem_core.envs.terminal.problem import Problem
from gem_core.envs.terminal.tasks import TASKS, Task, tasks_of

__all__ = ["TASKS", "Problem", "Task", "TerminalEnv", "tasks_of"]
