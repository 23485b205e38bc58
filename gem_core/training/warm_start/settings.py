"""What the weights after a warm start depend on, for the name of their place in the cache."""

from __future__ import annotations

from typing import Any

from gem_core.episodes.templates import Template
from gem_core.runs.cache import digest
from gem_core.runs.recipe.recipe import EnvConfig, Recipe
from gem_core.runs.recipe.templates import recipe_template
from gem_core.runs.splits import RunEnvs
from gem_core.training.warm_start.imitation import Imitation, imitation_of


def play_settings(recipe: Recipe, envs: RunEnvs) -> dict[str, Any]:
    """Return what the imitated episodes depend on, long texts as hashes."""
    from gem_core.runs.environments.data import task_fingerprint

    imitation = imitation_of(recipe)
    tables = recipe.to_dict()["env"]
    return {
        "seed": recipe.seed,
        "context": _context_settings(recipe),
        "template": digest(repr(_template(recipe))),
        "max_turns": recipe.limits.max_turns,
        "env": [
            {
                **table,
                "fingerprint": task_fingerprint(config, key),
                **_player_settings(config, imitation),
            }
            for (config, key), table in zip(envs["train"], tables, strict=True)
        ],
    }


def _template(recipe: Recipe) -> Template | None:
    return None if recipe.context.template == "chat" else recipe_template(recipe.context)


def _context_settings(recipe: Recipe) -> dict[str, Any]:
    """Return the table, without what the imitated episodes do not depend on.

    Those are the custom texts where another template is used, and whether summaries are trained.
    """
    table: dict[str, Any] = recipe.to_dict()["context"]
    if "compact" in table:
        table["compact"].pop("trained", None)
    if recipe.context.template != "custom":
        del table["custom"]
    return table


def _player_settings(env: EnvConfig, imitation: Imitation) -> dict[str, str | None]:
    """Return what identifies the players; no habit for random actions, as when there was none."""
    from gem_core.training.warm_start.episodes import sample_actions

    if not imitation.steps:
        return {"expert": None}
    players: dict[str, str | None] = {
        "expert": digest(sample_actions(env, teacher=imitation.teacher))
    }
    if imitation.habit != "random":
        players["habit"] = digest(sample_actions(env, teacher=imitation.habit))
    return players
