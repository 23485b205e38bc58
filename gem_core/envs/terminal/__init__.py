"""Tasks in a shell: files, text processing, git and small programs."""

from __future__ import annotations

from gem_core.envs.terminal.env import TerminalEnv
from gem_core.envs.terminal.problem import TerminalProblem
from gem_core.envs.terminal.tasks import TASKS

__all__ = ["TASKS", "TerminalEnv", "TerminalProblem"]
