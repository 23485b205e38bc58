"""Tasks with a database, which the agent reaches through an MCP server."""

from __future__ import annotations

from gem_core.envs.database.env import DatabaseEnv
from gem_core.envs.database.tasks import TASKS, DatabaseProblem

__all__ = ["TASKS", "DatabaseEnv", "DatabaseProblem"]
