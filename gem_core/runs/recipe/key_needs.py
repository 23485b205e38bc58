"""Keys of a recipe that have an effect only with another key, and what becomes of them without it.

A recipe that sets such a key and not the other is refused: what a user writes is never ignored. A
key with its default value is not set. An override that takes away what keys of the file need takes
these keys with it (`drop_idle`): ``--set algorithm.estimator=rebn`` on a baseline with a critic
leaves a recipe without the critic's keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gem_core.errors import RecipeError, did_you_mean
from gem_core.runs.recipe.recipe import EnvConfig, Recipe, recipe_keys


class Need(NamedTuple):
    """What keys need to have an effect.

    Attributes:
        keys: dotted keys, separated by spaces; a table stands for all of its keys.
        met: whether a recipe has it.
        what: names it to the user.
    """

    keys: str
    met: Callable[[Recipe], bool]
    what: str


class EnvNeed(NamedTuple):
    """What keys of an ``[[env]]`` or ``[[eval.env]]`` table need; see `Need`."""

    keys: str
    met: Callable[[Recipe, EnvConfig], bool]
    what: str


class Idle(NamedTuple):
    """A key that is set and has no effect."""

    key: str
    value: Any
    what: str
    """What it needs."""


def _has_critic(recipe: Recipe) -> bool:
    from gem_core.advantages import estimator_needs

    return estimator_needs(recipe.algorithm.estimator).values


def _reads(name: str) -> Callable[[Recipe], bool]:
    """Return whether the estimator, or the targets of its critic, depend on gamma or lam."""

    def reads(recipe: Recipe) -> bool:
        from gem_core.advantages import estimator_needs

        needs = estimator_needs(recipe.algorithm.estimator)
        return needs.values or name not in needs.ignores

    return reads


def _backend(*names: str) -> Callable[[Recipe], bool]:
    return lambda recipe: recipe.workers.backend in names


_COMPACT = 'context.history = "compact"'
NEEDS: tuple[Need, ...] = (
    Need("context.system", lambda r: r.context.template == "chat", 'context.template = "chat"'),
    Need(
        "context.custom.first context.custom.next context.custom.close",
        lambda r: r.context.template == "custom",
        'context.template = "custom"',
    ),
    Need("context.compact", lambda r: r.context.history == "compact", _COMPACT),
    Need("context.window", lambda r: r.context.history == "window", 'context.history = "window"'),
    Need(
        "limits.max_turns",
        lambda r: any(env.max_turns is None for env in [*r.env, *r.eval.env]),
        "an environment without max_turns in its own table, which is used instead",
    ),
    Need(
        "model.revision",
        lambda r: r.model.path != "tiny" and not Path(r.model.path).is_dir(),
        "a Hugging Face id as model.path; a directory has no revisions",
    ),
    Need(
        "model.warm_start.steps",
        lambda r: r.model.path != "tiny",
        "another model.path than tiny, which has model.tiny.warm_start_steps",
    ),
    Need(
        "model.warm_start.batch model.warm_start.lr model.warm_start.warmup "
        "model.warm_start.teacher model.warm_start.noise model.warm_start.habit",
        lambda r: r.model.path != "tiny" and r.model.warm_start.steps > 0,
        "model.warm_start.steps >= 1",
    ),
    Need("model.tiny", lambda r: r.model.path == "tiny", 'model.path = "tiny"'),
    Need(
        "model.tiny.warm_start_batch model.tiny.warm_start_lr model.tiny.expert_noise "
        "model.tiny.teacher model.tiny.habit",
        lambda r: r.model.tiny.warm_start_steps > 0,
        "model.tiny.warm_start_steps >= 1",
    ),
    Need(
        "model.lora.alpha model.lora.targets",
        lambda r: r.model.lora.rank > 0,
        "model.lora.rank >= 1",
    ),
    Need("algorithm.gamma", _reads("gamma"), "an algorithm.estimator that discounts, as rebn"),
    Need("algorithm.lam", _reads("lam"), 'a critic, as of algorithm.estimator = "gae"'),
    Need("algorithm.kl_in", lambda r: r.algorithm.kl_coef > 0, "algorithm.kl_coef > 0"),
    Need(
        "algorithm.rollout_cap",
        lambda r: r.algorithm.rollout_correction != "none",
        'algorithm.rollout_correction = "tis"',
    ),
    Need(
        "algorithm.loss_constant",
        lambda r: r.algorithm.loss_aggregation == "constant",
        'algorithm.loss_aggregation = "constant"',
    ),
    Need(
        "algorithm.critic_lr algorithm.value_clip",
        _has_critic,
        'a critic, as of algorithm.estimator = "gae"',
    ),
    Need(
        "batch.micro_batch",
        lambda r: r.batch.max_tokens_per_device is None,
        "batch.max_tokens_per_device left out, which takes its place",
    ),
    Need(
        "sampling.support",
        lambda r: r.sampling.truncated,
        "sampling.top_p below 1, or sampling.top_k >= 1: without them every token can be drawn",
    ),
    Need("sampling.refresh_turns", lambda r: r.sampling.staleness > 0, "sampling.staleness >= 1"),
    Need("eval.inside_episodes", lambda r: r.eval.every > 0, "eval.every >= 1"),
    Need(
        "eval.greedy",
        lambda r: r.eval.episodes > 0 and r.eval.temperature > 0,
        "eval.episodes >= 1, and eval.temperature > 0: at 0 the evaluation is greedy already",
    ),
    Need(
        "eval.top_p",
        lambda r: r.eval.temperature > 0,
        "eval.temperature > 0: at 0 an evaluation takes the most likely token",
    ),
    Need(
        "track.project",
        lambda r: bool({*r.track.to} - {"tensorboard"}),
        "a tracker in track.to that has projects (tensorboard has none)",
    ),
    Need("workers.address", _backend("ray", "server"), 'workers.backend = "ray" or "server"'),
    Need(
        "workers.number workers.max_restarts",
        _backend("process", "ray"),
        'workers.backend = "process" or "ray", which have worker processes of the run',
    ),
    Need(
        "workers.restart",
        _backend("process", "ray", "server"),
        'workers.backend = "process", "ray" or "server"',
    ),
    Need(
        "workers.deadline_s",
        lambda r: r.workers.backend != "inline" and r.limits.turn_deadline_s is None,
        'workers.backend other than "inline", and limits.turn_deadline_s left out, which takes its '
        "place",
    ),
)
"""Keys that need another one."""
ENV_NEEDS: tuple[EnvNeed, ...] = (
    EnvNeed("weight", lambda r, env: len(r.env) > 1, "several [[env]] tables"),
    EnvNeed("tool_use", lambda r, env: bool(env.tools), "tools in the same table"),
    EnvNeed(
        "tool_use.native",
        lambda r, env: r.context.template == "chat",
        'context.template = "chat"',
    ),
    EnvNeed(
        "tool_use.instructions",
        lambda r, env: not env.tool_use.native,
        "tool_use.native left out, with which the chat template describes the tools",
    ),
)
"""The same of the keys of an environment."""


def refuse_idle(recipe: Recipe) -> None:
    """Refuse a recipe that sets a key without effect.

    Raises:
        RecipeError: the first of them, with what it needs.
    """
    _refuse_strange_sources(recipe)
    for idle in idle_keys(recipe):
        raise RecipeError(
            f"{idle.key} = {idle.value!r} has no effect here: it goes with {idle.what}. Leave it "
            "out, or set that."
        )


def _refuse_strange_sources(recipe: Recipe) -> None:
    """Refuse a source of a key that no recipe has: ``gem-core show`` would never print it."""
    known = recipe_keys()
    for key in recipe.sources:
        if key not in known and not key.startswith(("env.", "eval.env.", "trainer.")):
            raise RecipeError(
                f"sources: no recipe has the key {key!r}.{did_you_mean(key, known)} See "
                "docs/recipes.md for all keys."
            )


def idle_keys(recipe: Recipe) -> list[Idle]:
    """Return the keys that differ from their defaults and have no effect in a valid recipe."""
    defaults = type(recipe)(name="-", env=[])
    idle = {
        key: Idle(key, value, need.what)
        for need in NEEDS
        if not need.met(recipe)
        for key, value in _set(need.keys, recipe, defaults, "")
    }
    tables = {f"env.{number}": env for number, env in enumerate(recipe.env)}
    tables |= {f"eval.env.{number}": env for number, env in enumerate(recipe.eval.env)}
    for place, env in tables.items():
        bare = type(env)(id=env.id)
        idle |= {
            key: Idle(key, value, need.what)
            for need in ENV_NEEDS
            if not need.met(recipe, env)
            for key, value in _set(need.keys, env, bare, f"{place}.")
        }
    return list(idle.values())


def _set(
    keys: str, table: msgspec.Struct, defaults: msgspec.Struct, prefix: str
) -> Iterator[tuple[str, Any]]:
    """Yield the keys of ``keys`` that differ from the defaults, with their values."""
    for key in keys.split():
        value: Any = table
        default: Any = defaults
        for part in key.split("."):
            value, default = getattr(value, part), getattr(default, part)
        if isinstance(value, msgspec.Struct):
            names = " ".join(field.name for field in msgspec.structs.fields(value))
            yield from _set(names, value, default, f"{prefix}{key}.")
        elif value != default:
            yield f"{prefix}{key}", value
