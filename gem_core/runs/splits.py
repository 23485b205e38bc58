"""The environments of a run: those of the training, and those of the evaluation.

Where both read the same table of data, they get the two parts of it (`gem_core.envs.parts`), so
that no question is in both. An environment takes part in this if its class has the class method
``items_played`` and the parameter ``part``, as `gem_core.envs.dataset.DatasetEnv` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from gem_core.env.registration import spec
from gem_core.envs.parts import Items
from gem_core.errors import RecipeError
from gem_core.runs.recipe.recipe import EnvConfig, Recipe, Split

_OTHER: dict[Split, Split] = {"train": "eval", "eval": "train"}


class RunEnv(NamedTuple):
    """An environment of a run.

    Attributes:
        config: its table, as the run makes it.
        key: of its table in the recipe (``env.0``), for messages.
    """

    config: EnvConfig
    key: str


RunEnvs: TypeAlias = Mapping[Split, tuple[RunEnv, ...]]
"""The environments of training and evaluation, in the recipe's order."""


def run_envs(recipe: Recipe) -> RunEnvs:
    """Return the environments of the training and of the evaluation.

    Raises:
        RecipeError: as `split_envs`.
    """
    return {split: _keyed(recipe, split) for split in _OTHER}


def _keyed(recipe: Recipe, split: Split) -> tuple[RunEnv, ...]:
    configs = enumerate(split_envs(recipe, split))
    return tuple(RunEnv(config, env_key(recipe, split, number)) for number, config in configs)


def env_key(recipe: Recipe, split: Split, position: int) -> str:
    """Return the key of an environment's table in the recipe: ``env.0`` or ``eval.env.0``."""
    table = "eval.env" if split == "eval" and recipe.eval.env else "env"
    return f"{table}.{position}"


def split_envs(recipe: Recipe, split: Split) -> list[EnvConfig]:
    """Return the environments of the training or of the evaluation, as the run makes them.

    A parameter ``part`` that is in the recipe is kept.

    Raises:
        RecipeError: training and evaluation would divide the same data in different ways.
    """
    others = [items for config in recipe.envs(_OTHER[split]) if (items := _items(config))]
    return [_with_part(config, split, others) for config in recipe.envs(split)]


def _with_part(config: EnvConfig, split: Split, others: list[Items]) -> EnvConfig:
    from msgspec.structs import replace

    own = _items(config)
    if own is None or "part" in _kwargs(config):
        return config
    same = [items for items in others if items.same_rows(own)]
    if not same:
        return config
    if any(items.division != own.division for items in same):
        raise RecipeError(
            f"{config.id}: training and evaluation read {own.dataset!r} with another held_out, or "
            "another column of questions, so that it cannot be divided between them: give both "
            "environments the same kwargs.held_out and kwargs.columns."
        )
    return replace(config, kwargs={**config.kwargs, "part": split})


def _kwargs(config: EnvConfig) -> dict[str, Any]:
    return {**spec(config.id).kwargs, **config.kwargs}


def _items(config: EnvConfig) -> Items | None:
    """Return which items an environment plays; ``None`` if its tasks are not those of a table."""
    items_of = getattr(spec(config.id).load(), "items_played", None)
    if not callable(items_of):
        return None
    try:
        items = items_of(**_kwargs(config))
    except TypeError as error:
        raise RecipeError(f"env: {config.id}: {error}") from error
    return items if isinstance(items, Items) else None
