"""Every key of a recipe, and other values that it may have, derived from the recipe's types."""

from __future__ import annotations

from msgspec import inspect

from gem_core.runs.recipe.files import merge_overrides
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
ALSO = {
    "algorithm.clip_low": {"0.45": ["algorithm.clip_high=0.45"]},
    "algorithm.clip_high": {"0.45": ["algorithm.clip_low=0.45"]},
    "context.history": {"window": ["context.window=2"]},
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


def all_keys():
    """Every dotted key, in the order of the tables, with the node of its type."""
    keys = dict(_fields(inspect.type_info(Recipe), ""))
    for table in ("env.0.", "eval.env.0."):
        keys |= dict(_fields(inspect.type_info(EnvConfig), table))
    del keys["eval.env.0.weight"]  # refused: an evaluation plays its environments in turn
    return keys


def _fields(table, prefix):
    for field in table.fields:
        node = field.type.type if isinstance(field.type, inspect.Metadata) else field.type
        if isinstance(node, inspect.StructType):
            yield from _fields(node, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", node


def other_values(key, node, value):
    """Other values of a key as TOML: of choices all, else at least one."""
    given = VALUES.get(key) or SIZES.get(key)
    if given:
        return given
    return derived(node, value)


def derived(node, value):
    """Other values by the type alone; none where it does not say which."""
    if isinstance(node, inspect.UnionType):
        return [text for part in node.types for text in derived(part, value)]
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


def _inside(node, value, step):
    """Another number in the range of the type."""
    lowest = max([bound for bound in (node.ge, node.gt) if bound is not None], default=0)
    highest = min([bound for bound in (node.le, node.lt) if bound is not None], default=10**9)
    start = lowest if value is None or value < 0 else value
    other = start + step
    return other if lowest < other <= highest else start / 2


def needs_of(key, table, needs):
    """Overrides that meet what a key needs, outside of one's own."""
    found = []
    for need in needs:
        for name in need.keys.split():
            if key == f"{table}{name}" or key.startswith(f"{table}{name}."):
                texts = [text.replace("{table}", table.rstrip(".")) for text in MEETS[need.keys]]
                found += [text for text in texts if text not in found]
    return found


def changed(data, overrides):
    """The tables of a recipe with overrides."""
    return merge_overrides(data, overrides)
