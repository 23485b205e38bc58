"""The recipe: the description of one experiment, which every adapter translates.

A recipe is a TOML file. `load_recipe` merges, in this order: the defaults of the schema below, the
baseline (environment, template, the paper's hyper-parameters with their sources), a profile
(``tiny``, ``paper``), the baseline's own ``[profiles.<name>]`` table, and ``key=value`` overrides.
Unknown keys, wrong types and impossible values are errors that name the key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gem_core.episodes.machine import Limits
from gem_core.errors import RecipeError, did_you_mean
from gem_core.runs.recipe.checks import refuse_secrets, validate
from gem_core.runs.recipe.errors import explain
from gem_core.runs.recipe.files import (
    flatten,
    merge,
    merge_overrides,
    overridden,
    parse_override,
    read_tables,
    recipe_dirs,
    shipped,
)
from gem_core.runs.recipe.key_needs import drop_idle, refuse_idle
from gem_core.runs.recipe.ranges import RunSeed, Text
from gem_core.runs.recipe.tables import (
    AlgorithmConfig,
    BatchConfig,
    ContextConfig,
    EnvConfig,
    EvalConfig,
    HardwareConfig,
    LoraConfig,
    ModelConfig,
    SamplingConfig,
    Split,
    Table,
    TinyConfig,
    ToolUse,
    TrackConfig,
    TrainConfig,
    WorkersConfig,
)

__all__ = [
    "AlgorithmConfig",
    "BatchConfig",
    "ContextConfig",
    "EnvConfig",
    "EvalConfig",
    "HardwareConfig",
    "LoraConfig",
    "ModelConfig",
    "Recipe",
    "SamplingConfig",
    "Split",
    "TinyConfig",
    "ToolUse",
    "TrackConfig",
    "TrainConfig",
    "WorkersConfig",
    "flatten",
    "get_key",
    "load_recipe",
    "merge",
    "override",
    "parse_override",
    "recipe_dirs",
    "recipe_from_dict",
    "recipe_keys",
    "shipped",
    "stored_recipe",
    "validate",
]


class Recipe(Table, frozen=True, kw_only=True):
    """One experiment. The class of each table describes its keys."""

    name: Text
    """Name of the experiment in tables and run directories; it has no slash and begins with no
    dot."""
    env: list[EnvConfig]
    """The environments, one ``[[env]]`` table each."""
    seed: RunSeed = 0
    """Seed of the training tasks, the warm start and all sampling; 0 to 999."""
    context: ContextConfig = ContextConfig()
    limits: Limits = Limits()
    model: ModelConfig = ModelConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    batch: BatchConfig = BatchConfig()
    sampling: SamplingConfig = SamplingConfig()
    eval: EvalConfig = EvalConfig()
    train: TrainConfig = TrainConfig()
    hardware: HardwareConfig = HardwareConfig()
    workers: WorkersConfig = WorkersConfig()
    track: TrackConfig = TrackConfig()
    trainer: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    """Native keys per trainer, passed on unchanged: ``[trainer.trl]`` ..."""
    sources: dict[str, str] = msgspec.field(default_factory=dict)
    """Sources of values, by dotted key."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types; `recipe_from_dict` is the inverse."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        # As in the recipes of runs from before there were these keys.
        if not self.eval.env:
            del data["eval"]["env"]
        if self.eval.engine == "hf":
            del data["eval"]["engine"]
        for table in [*data["env"], *data["eval"].get("env", [])]:
            if table["tools"] is None:  # here, too
                del table["tools"], table["tool_use"]
        return data

    def envs(self, split: Split) -> list[EnvConfig]:
        """Return the environments of the training or of the evaluation, as the recipe has them.

        A run plays them with the changes of `gem_core.runs.splits.split_envs`.
        """
        return self.eval.env if split == "eval" and self.eval.env else self.env

    @property
    def groups_per_step(self) -> int:
        """Distinct initial states per training step."""
        return self.batch.episodes // self.batch.group_size


def load_recipe(
    baseline: str | Path,
    profile: str | Path | None = None,
    overrides: Sequence[str] = (),
) -> Recipe:
    """Read a recipe.

    Args:
        baseline: a TOML file, or the name of a shipped baseline.
        profile: a TOML file, or the name of a shipped profile.
        overrides: ``dotted.key=value`` strings; the value is TOML (a bare word is a string).

    Raises:
        RecipeError: there is no such file, or a key is unknown, has a wrong type, an impossible
            value or no effect.
        TrustError: it names code that no installed plugin defines, and the variable
            ``GEM_CORE_TRUST`` is not 1 (``--trust`` of the commands sets it).
    """
    tables = read_tables(baseline, profile, overrides)
    refuse_secrets(tables)
    if overrides:
        before = read_tables(baseline, profile, ())
        tables = drop_idle(tables, overridden(overrides), before)
    return _with_known_trainers(recipe_from_dict(tables))


def override(recipe: Recipe, overrides: Sequence[str]) -> Recipe:
    """Return ``recipe`` with ``dotted.key=value`` overrides.

    Raises:
        RecipeError: a key is unknown, has a wrong type or an impossible value, or an override has
            no effect.
    """
    for text in overrides:
        refuse_secrets(parse_override(text))
    data = merge_overrides(recipe.to_dict(), overrides)
    return _with_known_trainers(recipe_from_dict(drop_idle(data, overridden(overrides))))


def recipe_from_dict(data: Mapping[str, Any]) -> Recipe:
    """Build and validate a recipe from plain types.

    Raises:
        RecipeError: a key is unknown, has a wrong type, an impossible value or no effect.
    """
    recipe = stored_recipe(data)
    refuse_idle(recipe)
    return recipe


def stored_recipe(data: Mapping[str, Any]) -> Recipe:
    """Build and validate a recipe that was written by a program, as that of a run.

    It may have keys without effect: runs from before they were refused do.

    Raises:
        RecipeError: a key is unknown, has a wrong type or an impossible value.
    """
    try:
        recipe = msgspec.convert(data, Recipe)
    except msgspec.ValidationError as error:
        raise RecipeError(explain(str(error), data)) from None
    validate(recipe)
    return recipe


def _with_known_trainers(recipe: Recipe) -> Recipe:
    """Return ``recipe`` if every table ``[trainer.<name>]`` is that of an installed trainer.

    A stored recipe is read without this check: its trainer may be installed elsewhere only.
    """
    from gem_core.runs.trainers import trainer_names

    known = trainer_names()
    for name in recipe.trainer:
        if name not in known:
            hint = did_you_mean(name, known)
            raise RecipeError(
                f"trainer.{name}: no trainer has this name.{hint} Known: {', '.join(known)}."
            )
    return recipe


def recipe_keys(table: type[msgspec.Struct] = Recipe, prefix: str = "") -> list[str]:
    """Return every dotted key of a recipe; ``env``, ``eval.env`` and ``trainer`` are one each."""
    keys: list[str] = []
    for field in msgspec.structs.fields(table):
        name = f"{prefix}{field.name}"
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            keys += recipe_keys(field.type, name + ".")
        else:
            keys.append(name)
    return keys


def get_key(recipe: msgspec.Struct, key: str) -> Any:
    """Return the value of a dotted key."""
    value: Any = recipe
    for part in key.split("."):
        value = getattr(value, part)
    return value
