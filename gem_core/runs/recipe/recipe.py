"""The recipe: the description of one experiment, which every adapter translates.

A recipe is a TOML file; `gem_core.runs.recipe.load` reads and checks it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from gem_core.episodes.machine import Limits
from gem_core.episodes.request_seed import Split
from gem_core.runs.recipe.ranges import RunSeed, Text
from gem_core.runs.recipe.tables import (
    AlgorithmConfig,
    BatchConfig,
    CompactConfig,
    ContextConfig,
    EnvConfig,
    EvalConfig,
    HardwareConfig,
    LoraConfig,
    ModelConfig,
    SamplingConfig,
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
    "CompactConfig",
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
    "get_key",
    "recipe_keys",
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
        if not self.eval.greedy:
            del data["eval"]["greedy"]
        if self.eval.top_p is None:
            del data["eval"]["top_p"]
        if self.context.compact == CompactConfig():
            del data["context"]["compact"]
        if not self.sampling.staleness:
            del data["sampling"]["staleness"], data["sampling"]["refresh_turns"]
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
    def eval_top_p(self) -> float:
        """The ``top_p`` of every evaluation: ``eval.top_p``, else that of training."""
        return self.sampling.top_p if self.eval.top_p is None else self.eval.top_p

    @property
    def groups_per_step(self) -> int:
        """Distinct initial states per training step."""
        return self.batch.episodes // self.batch.group_size


def recipe_keys(table: type[msgspec.Struct] = Recipe, prefix: str = "") -> list[str]:
    """Return every dotted key of a recipe; ``env``, ``eval.env`` and ``trainer`` are one each."""
    return [prefix + key for key in _keys_of(table)]


@cache
def _keys_of(table: type[msgspec.Struct]) -> tuple[str, ...]:
    keys: list[str] = []
    for field in msgspec.structs.fields(table):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            keys += recipe_keys(field.type, field.name + ".")
        else:
            keys.append(field.name)
    return tuple(keys)


def get_key(recipe: msgspec.Struct, key: str) -> Any:
    """Return the value of a dotted key."""
    value: Any = recipe
    for part in key.split("."):
        value = getattr(value, part)
    return value
