"""Every key of a recipe, and other values that it may have, derived from the recipe's types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from msgspec import inspect

from gem_core.errors import GemError, RecipeError
from gem_core.runs.recipe.key_needs import ENV_NEEDS, NEEDS, EnvNeed, Need
from gem_core.runs.recipe.load import load_recipe, override
from gem_core.runs.recipe.recipe import EnvConfig, Recipe

OTHER = "{id = 'game:Mastermind-v0-easy'}"
VALUES = {
    "name": ["another"],
    "env": [f"[{OTHER}]"],
    "env.0.id": ["'game:Mastermind-v0-easy'"],
    "env.0.kwargs": ["{max_turns = 2}"],
    "env.0.tools": ["['python']"],
    "eval.env": [f"[{OTHER}]"],
    "eval.env.0.id": ["'game:Mastermind-v0-easy'"],
    "eval.env.0.kwargs": ["{max_turns = 2}"],
    "eval.env.0.tools": ["['python']"],
    "context.template": ["'no'", "'chat'"],
    "context.compact.prompt": ["'Sum up.'"],
    "context.custom.first": ["'Play: {observation}'"],
    "context.custom.next": ["'Then: {observation}'"],
    "context.custom.close": ["'<|im_end|>'"],
    "context.system": ["'Be brief.'"],
    "model.path": ["'org/another'"],
    "model.revision": ["'v2'"],
    "model.tiny.hidden": ["128"],
    "model.tiny.heads": ["8"],
    "model.tiny.habit": ["'expert'", "'lowest-left'"],
    "model.tiny.teacher": ["'random'", "'within-hints'"],
    "model.warm_start.teacher": ["'within-hints'"],
    "model.warm_start.habit": ["'expert'", "'lowest-left'"],
    "model.lora.targets": ["['q_proj']"],
    "algorithm.estimator": ["'reinforce'", "'gae'"],
    "algorithm.options": ["{per_env = true}"],
    "workers.address": ["'auto'", "'http://127.0.0.1:8001'"],
    "sampling.top_k": ["5"],
    "track.to": ["['mlflow']"],
    "track.project": ["'another'"],
    "trainer": [],
    "sources": [],
}
"""Values of keys whose type does not say which are possible.

``trainer`` holds native keys, which are not the recipe's (`tests/contract/test_native_fuzz.py`);
``sources`` says where values come from, and is shown by ``gem-core show``."""
SIZES = {
    "batch.episodes": ["192", "1536"],
    "batch.max_tokens_per_device": ["20000"],
    "hardware.gpus_per_node": ["4"],
    "model.lora.alpha": ["16"],
    "workers.number": ["3", "5"],
}
"""Sizes that fit to the others, where that of the type would be refused by a trainer: batches that
can be divided, whole numbers, another number of workers than this machine's default."""
ALSO: dict[str, dict[str, list[str]]] = {
    "algorithm.clip_low": {"0.45": ["algorithm.clip_high=0.45"]},
    "algorithm.clip_high": {"0.45": ["algorithm.clip_low=0.45"]},
    "context.history": {
        "window": ["context.window=2"],
        "compact": ["context.compact.budget=60"],
    },
    "algorithm.loss_aggregation": {"constant": ["algorithm.loss_constant=9"]},
    "algorithm.estimator": {"'gae'": ["algorithm.gamma=0.9"]},
    "hardware.device": {"gpu": ["hardware.engine=default"], "cpu": ["hardware.engine=default"]},
    "workers.backend": {"server": ["workers.address='http://127.0.0.1:8000'"]},
    "hardware.engine_tensor_parallel": {"2": ["hardware.gpus_per_node=4"]},
    "hardware.tensor_parallel": {"2": ["hardware.gpus_per_node=4"]},
    "hardware.sequence_parallel": {"2": ["hardware.gpus_per_node=4"]},
}
"""Key -> value -> overrides that a valid recipe with it needs."""
MEETS = {
    "context.system": ["context.template=chat"],
    "context.custom.first context.custom.next context.custom.close": ["context.template=custom"],
    "context.window": ["context.history=window", "context.window=3"],
    "context.compact": ["context.history=compact", "context.compact.budget=60"],
    "limits.max_turns": [],
    "model.revision": ["model.path=org/another"],
    "model.tiny": [],
    "model.tiny.warm_start_batch model.tiny.warm_start_lr model.tiny.expert_noise "
    "model.tiny.teacher model.tiny.habit": [],
    "model.warm_start.steps": ["model.path=org/another"],
    "model.warm_start.batch model.warm_start.lr model.warm_start.warmup "
    "model.warm_start.teacher model.warm_start.noise model.warm_start.habit": [
        "model.path=org/another",
        "model.warm_start.steps=3",
    ],
    "model.lora.alpha model.lora.targets": ["model.lora.rank=4"],
    "algorithm.gamma": [],
    "algorithm.lam": ["algorithm.estimator=gae"],
    "algorithm.kl_in": ["algorithm.kl_coef=0.1"],
    "algorithm.rollout_cap": ["algorithm.rollout_correction=tis"],
    "algorithm.loss_constant": ["algorithm.loss_aggregation=constant", "algorithm.loss_constant=7"],
    "algorithm.critic_lr algorithm.value_clip": ["algorithm.estimator=gae"],
    "batch.micro_batch": [],
    "sampling.support": ["sampling.top_k=5"],
    "sampling.refresh_turns": ["sampling.staleness=1"],
    "eval.inside_episodes": ["eval.every=1"],
    "eval.greedy": [],
    "eval.top_p": [],
    "track.project": ["track.to=['mlflow']"],
    "workers.address": ["workers.backend=ray"],
    "workers.number workers.max_restarts": ["workers.backend=process"],
    "workers.restart": ["workers.backend=process"],
    "workers.deadline_s": ["workers.backend=process"],
    "weight": ["env=[{id='game:GuessTheNumber-v0-easy'}, {id='game:Hangman-v0-easy'}]"],
    "tool_use": ["{table}.tools=['python']"],
    "tool_use.native": ["context.template=chat"],
    "tool_use.instructions": [],
}
"""`Need.keys` -> overrides that meet it, where the recipe of the test does not."""


WORLDS = {"cpu": "tiny", "gpu": "paper"}
"""Profiles of the recipes on which every key is changed."""
_ENV_TABLES = ("env.0.", "eval.env.0.")


def all_keys() -> dict[str, inspect.Type]:
    """Return every dotted key, in the order of the tables, with the node of its type."""
    keys = dict(_fields(inspect.type_info(Recipe), ""))
    for table in _ENV_TABLES:
        keys |= dict(_fields(inspect.type_info(EnvConfig), table))
    del keys["eval.env.0.weight"]  # refused: an evaluation plays its environments in turn
    return keys


def _fields(table: Any, prefix: str) -> Iterator[tuple[str, inspect.Type]]:
    for field in table.fields:
        node = field.type.type if isinstance(field.type, inspect.Metadata) else field.type
        if isinstance(node, inspect.StructType):
            yield from _fields(node, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", node


def other_values(key: str, node: inspect.Type, value: Any) -> list[str]:
    """Return other values of a key as TOML: of choices all, else at least one."""
    return VALUES.get(key) or SIZES.get(key) or derive(node, value)


def derive(node: inspect.Type, value: Any) -> list[str]:
    """Return other values by the type alone; none where it does not say which."""
    if isinstance(node, inspect.UnionType):
        return [text for part in node.types for text in derive(part, value)]
    if isinstance(node, inspect.LiteralType):
        return [str(choice) for choice in node.values if choice != value]
    if isinstance(node, inspect.BoolType):
        return [str(not value).lower()]
    if isinstance(node, inspect.IntType):
        return [str(_inside(node, value, 1))]
    if isinstance(node, inspect.FloatType):
        return [str(_inside(node, value, 0.25))]
    if isinstance(node, inspect.TupleType):
        return [str([item / 2 for item in value])]
    return []


def _inside(node: inspect.IntType | inspect.FloatType, value: Any, step: float) -> float:
    """Return another number in the range of the type."""
    lowest = max([bound for bound in (node.ge, node.gt) if bound is not None], default=0)
    highest = min([bound for bound in (node.le, node.lt) if bound is not None], default=10**9)
    start = lowest if value is None or value < 0 else value
    other: float = start + step
    return other if lowest < other <= highest else start / 2


def needs_of(key: str, table: str, needs: Iterable[Need | EnvNeed]) -> list[str]:
    """Return overrides that meet what a key needs, outside of one's own."""
    found: list[str] = []
    for need in needs:
        for name in need.keys.split():
            if key == f"{table}{name}" or key.startswith(f"{table}{name}."):
                texts = [text.replace("{table}", table.rstrip(".")) for text in MEETS[need.keys]]
                found += [text for text in texts if text not in found]
    return found


def start_of(world: str, key: str) -> Recipe:
    """Return the recipe on which a key is changed: with what it needs."""
    needs = [*needs_of(key, "", NEEDS)]
    for table in _ENV_TABLES:
        needs += needs_of(key, table, ENV_NEEDS)
        if key.startswith("eval.env.0.") and table == key[: len(table)]:
            needs.insert(0, "eval.env=[{id = 'game:GuessTheNumber-v0-easy'}]")
    return load_recipe(
        "guess-the-number-easy", WORLDS[world], ["train.steps=3", *dict.fromkeys(needs)]
    )


def value_of(recipe: Recipe, key: str) -> Any:
    """Return the value of a key; a number in it is a position."""
    value: Any = recipe
    for part in key.split("."):
        value = value[int(part)] if part.isdecimal() else getattr(value, part)
    return value


class Change(NamedTuple):
    """A valid recipe in which one key has another value.

    Attributes:
        text: the value, as TOML.
        also: overrides that it needs.
        starts: recipes to compare with; the first one that can be made has what the value needs.
        after: the recipe with the value.
    """

    text: str
    also: list[str]
    starts: list[Recipe]
    after: Recipe


def valid_changes(world: str, key: str, node: inspect.Type) -> Iterator[Change]:
    """Yield each other value of a key that makes a valid recipe."""
    start = start_of(world, key)
    for text in other_values(key, node, value_of(start, key)):
        also = ALSO.get(key, {}).get(text, [])
        try:
            after = override(start, [*also, f"{key}={text}"])
        except GemError:
            continue
        try:
            starts = [override(start, also), start]
        except GemError:
            starts = [start]
        yield Change(text, also, starts, after)


class ValueOutcome(NamedTuple):
    """What came of one value of one key.

    Attributes:
        kind: ``unmet``: no recipe to compare with is accepted.
        seen: what was made of the recipe, or the error.
    """

    kind: Literal["effect", "refused", "none", "unmet"]
    seen: object


def try_change(observe: Callable[[Recipe], object], key: str, change: Change) -> ValueOutcome:
    """Return what comes of a change.

    Args:
        observe: returns what is made of a recipe; raises RecipeError where it is refused.
        key: that is changed.
        change: its new value.
    """
    unmet = ""
    for start in change.starts:
        try:
            before = observe(start)
            break
        except RecipeError as error:
            unmet = str(error)
    else:
        return ValueOutcome("unmet", unmet)
    try:
        seen = observe(change.after)
    except RecipeError as error:
        named = [key, *(text.partition("=")[0] for text in change.also)]
        by_name = any(name in str(error) for name in named)
        return ValueOutcome("refused" if by_name else "none", str(error))
    return ValueOutcome("effect" if seen != before else "none", seen)


def is_synonym(node: inspect.Type, text: str, outcomes: Mapping[str, ValueOutcome]) -> bool:
    """Return whether a choice without effect means the same as the choice "default".

    Args:
        node: the type of the key.
        text: the choice.
        outcomes: what came of all values of the key.
    """
    silent = [other for other, outcome in outcomes.items() if outcome.kind == "none"]
    return "default" in getattr(node, "values", ()) and silent == [text]
