"""The rows of ``run.json``: what each environment of a run was made from.

`gem_core.runs.environments.description.describe_environments` says what a row holds.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeAlias

from gem_core.runs.environments.tools import tools_key
from gem_core.runs.recipe.tables import EnvConfig

Row: TypeAlias = dict[str, Any]
_HUB_REVISION = re.compile(r"(.+)@([0-9a-f]{40})")


def config_key(config: EnvConfig) -> str:
    """Return what tells an environment of a recipe from the others, see `row_key`."""
    return f"{config.id} {as_json(config.kwargs)} {tools_key(config)}"


def row_key(row: Row) -> str:
    """Return what tells the environment of a row from the others: id, parameters and tools."""
    return f"{row['id']} {as_json(row['kwargs'])} {row.get('tools_key', '')}"


def commit_of(row: Row) -> dict[str, str]:
    """Return the data set on the Hub and its commit, if the row has one."""
    match = _HUB_REVISION.fullmatch(row["data_revision"] or "")
    return {} if match is None else {match[1]: match[2]}


def as_json(data: Any) -> str:
    """Return data as JSON with sorted keys; what JSON has no type for becomes its text."""
    return json.dumps(data, sort_keys=True, default=str)
