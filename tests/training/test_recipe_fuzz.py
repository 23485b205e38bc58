"""Random recipes: each is refused with a key named, or has exactly the values it was given."""

from __future__ import annotations

import json
import math
import random

import msgspec
import pytest

from gem_core.errors import GemError
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.recipe.recipe import recipe_keys

RECIPES = 500
GUESS = "game:GuessTheNumber-v0-easy"
HANOI = "game:TowerofHanoi-v0-easy"
ENV_KEYS = ["env.0.id", "env.0.weight", "env.0.max_turns", "env.0.kwargs.max_number"]
OPTION_KEYS = ["algorithm.options.eps", "algorithm.options.per_env", "trainer.trl.x"]
KEYS = [*sorted(recipe_keys()), *ENV_KEYS, *OPTION_KEYS]
MISSPELT = {
    "algorithm.lrr": "'algorithm.lrr'",
    "trian.steps": "'trian'",
    "env.0.wait": "'env.0.wait'",
    "env.7.weight": "env.7: ",
    "trainer.trll.x": "trainer.trll: ",
}
"""Keys that no recipe has, and what the error names."""
NUMBERS = [0, 1, -1, 2, 3, 7, 32, 1000, 10**18, 0.0, 0.5, 1.0, 1.5, -0.2, 1e-6, 1e300]
ODD = [math.inf, -math.inf, math.nan, True, False, "", "x", [], [1], {}, {"x": 1}]
WORDS = ["rebn", "grpo", "gae", "chat", "qwen3_game", "window", "last", "constant", "sequence"]
WORDS += ["cosine", "reward", "float32", "cpu", "vllm", "pass", HANOI, "tiny"]
TABLES = [[0.9, 0.99], [2, 0.9], [0.5, math.nan], [{"id": GUESS}, {"id": HANOI, "weight": 2}]]
TABLES += [[{"id": GUESS, "weight": 0}], {"eps": 0.1}, {"trl": {"y": 2}}, {"algorithm.lr": "ours"}]
FITTING = {
    bool: [True, False],
    int: [1, 2, 4, 8],
    float: [0.25, 0.5, 1e-3],
    str: WORDS,
    tuple: [[0.9, 0.99], [0.0, 0.5]],
    dict: [{}],
    list: TABLES,
    type(None): [1, 5, 100],
}
"""Values by the kind of the present value, in this order: a boolean is an integer, too."""
PRESENT = load_recipe("guess-the-number-easy", "tiny", ["trainer.trl.x=1"])


def toml(value):
    """A value as TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value) if isinstance(value, (bool, str)) else repr(value)


def drawn(number):
    """The overrides of random recipe ``number``: one to three keys, none a part of another."""
    rng = random.Random(number)
    given = {}
    for key in [KEYS[number % len(KEYS)], *rng.sample([*KEYS, *MISSPELT], rng.randrange(3))]:
        value = rng.choice(rng.choice(pools(key)))
        if not any(f"{key}.".startswith(f"{k}.") or f"{k}.".startswith(f"{key}.") for k in given):
            given[key] = value
    return given


def pools(key):
    """The lists of values for a key: two in three fit the kind of its present value."""
    present = None if key in MISSPELT else value_of(PRESENT, key)
    fits = next(pool for kind, pool in FITTING.items() if isinstance(present, kind))
    return [fits] * 10 + [NUMBERS, NUMBERS, ODD, WORDS, TABLES]


def value_of(recipe, key):
    """The value of an override's key in a recipe."""
    value = recipe
    for part in key.split("."):
        if isinstance(value, list):
            value = value[int(part)]
        elif isinstance(value, dict):
            value = value.get(part)
        else:
            value = getattr(value, part)
    return value


def has(value, given):
    """Whether a stored value is the given one; a table may have further keys."""
    if isinstance(given, dict):
        table = value if isinstance(value, dict) else msgspec.structs.asdict(value)
        return all(k in table and has(table[k], v) for k, v in given.items())
    if isinstance(given, list):
        return len(value) == len(given) and all(map(has, value, given))
    if isinstance(given, float) and math.isnan(given):
        return math.isnan(value)
    same_kind = isinstance(given, bool) == isinstance(value, bool)
    return same_kind and value == (float(given) if isinstance(value, float) else given)


def named(key, message):
    """Whether an error names an override's key, its misspelt table, or its place in one."""
    table, _, last = key.rpartition(".")
    return (
        key in message
        or MISSPELT.get(key, key) in message
        or (message.startswith(f"{table}: ") and f"'{last}'" in message)
    )


@pytest.mark.parametrize("first", range(0, RECIPES, 50))
def test_a_random_recipe_is_refused_by_key_or_has_its_values(first):
    for number in range(first, first + 50):
        given = drawn(number)
        try:
            recipe = load_recipe(
                "guess-the-number-easy", "tiny", [f"{k}={toml(v)}" for k, v in given.items()]
            )
        except GemError as error:
            assert any(named(key, str(error)) for key in given), (number, given, str(error))
            continue
        assert not given.keys() & MISSPELT.keys(), (number, given)
        for key, value in given.items():
            assert has(value_of(recipe, key), value), (number, key, value)
