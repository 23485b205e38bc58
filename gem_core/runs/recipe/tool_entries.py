"""The tools that an ``[[env]]`` table names: each entry is a name, or a table with options."""

from __future__ import annotations

from typing import Any

from gem_core.errors import RecipeError
from gem_core.runs.recipe.tables import EnvConfig


def wanted_tools(config: EnvConfig, key: str) -> list[tuple[str, dict[str, Any]]]:
    """Return name and options of each tool of an environment; ``key`` is that of its table.

    Raises:
        RecipeError: an entry has no name, or one is named twice.
    """
    wanted: list[tuple[str, dict[str, Any]]] = []
    for number, entry in enumerate(config.tools or []):
        options = {"name": entry} if isinstance(entry, str) else dict(entry)
        name = options.pop("name", None)
        if not isinstance(name, str):
            raise RecipeError(
                f'{key}.tools.{number}: a tool needs a name, {{name = "python"}}; got {entry!r}.'
            )
        if name in [other for other, _ in wanted]:
            raise RecipeError(f"{key}.tools.{number}: {name!r} is there twice; name it once.")
        wanted.append((name, options))
    return wanted
