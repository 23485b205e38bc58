"""What follows from the rows of an adapter's key table."""

from __future__ import annotations

import pytest

from gem_adapters.key_table import (
    KeyTable,
    applied,
    computed,
    copied,
    default,
    fixed,
    only_if,
    refused,
    unset,
)
from gem_core.runs.recipe.load import load_recipe


def twice(recipe):
    """Return twice the number.

    Not of the rule.
    """
    return 2 * recipe.seed


TABLE = KeyTable(
    copied("algorithm.lr", "+optim.lr critic.lr"),
    copied("algorithm.options", "options"),
    copied("limits.max_turns", "turns"),
    computed("seed algorithm.epochs", "double", twice),
    computed("model.dtype", "half", only_if(lambda r: r.seed == 2, True), "for seed 2"),
    default("workers", 3, keys="train.steps"),
    fixed("mode", "sync"),
    fixed("shuffle", False, "in order"),
    unset("horizon", keys="algorithm.kl_coef"),
    unset("path", "the launcher sets it"),
    applied("seed algorithm.gamma", "by hand"),
    refused("hardware.nodes", "one only."),
)


def test_what_is_set():
    recipe = load_recipe("guess-the-number-easy", "tiny", ["seed=2", "algorithm.lr=0.5"])
    shown = {"+optim.lr": 0.5, "critic.lr": 0.5, "turns": recipe.limits.max_turns, "double": 4}
    constant = {"workers": 3, "mode": "sync", "shuffle": False}
    assert TABLE.settings(recipe) == {**shown, **constant, "half": True}


def test_a_value_may_be_left_out_and_a_table_is_dotted_keys():
    keys = ["seed=1", "algorithm.options={per_env=true}"]
    settings = TABLE.settings(load_recipe("guess-the-number-easy", "tiny", keys))
    assert "half" not in settings
    assert settings["options.per_env"] is True


def test_what_becomes_of_recipe_keys():
    assert TABLE.applied == {"seed", "algorithm.gamma"}
    assert TABLE.refused == {"hardware.nodes": "one only."}
    # Neither a key of the core (limits), nor one that is applied (seed), nor that of an unset row.
    keys = {"algorithm.lr", "algorithm.options", "algorithm.epochs", "model.dtype", "train.steps"}
    assert TABLE.translated == keys


def test_what_decides_native_keys():
    assert TABLE.owned == {
        "optim.lr": "set algorithm.lr instead",
        "critic.lr": "set algorithm.lr instead",
        "options": "set algorithm.options instead",
        "turns": "set limits.max_turns instead",
        "double": "set seed and algorithm.epochs instead",
        "half": "set model.dtype instead",
        "mode": "the adapter needs 'sync' there",
        "shuffle": "in order",
        "horizon": "set algorithm.kl_coef instead",
        "path": "the launcher sets it",
    }
    assert TABLE.defaults == {"workers": 3}
    assert TABLE.fixed == {"mode": "sync", "shuffle": False}


def test_a_rule_is_the_docstring_of_its_function():
    (row, _) = TABLE.of("computed")
    assert row.text == "twice the number"
    with pytest.raises(ValueError, match="rule"):
        computed("seed", "x", lambda r: r.seed)


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ([copied("algorithm.lrr", "lr")], "algorithm.lrr"),
        ([copied("algorithm.lr", "lr"), fixed("+lr", 1)], "twice: .'lr'"),
        ([copied("algorithm.lr", "lr lr")], "twice: .'lr'"),
        ([copied("seed", "x"), refused("seed", "no.")], "refused: .'seed'"),
        ([unset("path")], "without a reason: .'path'"),
    ],
)
def test_a_wrong_table_is_an_error(rows, named):
    with pytest.raises(ValueError, match=named):
        KeyTable(*rows)
