"""Which environments training and evaluation play, and which part of the data each of them gets."""

from __future__ import annotations

import pytest

import gem_core
from gem_core.errors import RecipeError
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.splits import split_envs

GUESS = "guess-the-number-easy"
SAMPLE = "{id='math:GSM8K', kwargs={dataset='sample'}}"
MATH500 = "{id='eval:MATH500', kwargs={dataset='sample'}}"


def parts(env, evaluation=None):
    """``(id, part)`` of the environments of the training, and those of the evaluation."""
    tables = [f"env=[{env}]"]
    if evaluation:
        tables.append(f"eval.env=[{evaluation}]")
    recipe = load_recipe(GUESS, "tiny", tables)
    return [
        [(config.id, config.kwargs.get("part")) for config in split_envs(recipe, split)]
        for split in ("train", "eval")
    ]


def table(env_id="math:GSM8K", **kwargs):
    """One environment in TOML."""
    return f"{{id='{env_id}', kwargs={{{', '.join(f'{k}={v!r}' for k, v in kwargs.items())}}}}}"


def test_games_and_generators_have_no_parts():
    for env_id in ("game:Sudoku-v0-easy", "rg:letter_counting", "multi:Nim-v0-easy"):
        assert parts(f"{{id='{env_id}'}}") == [[(env_id, None)]] * 2


def test_the_same_data_are_divided():
    train, evaluation = parts(SAMPLE)
    assert (train, evaluation) == ([("math:GSM8K", "train")], [("math:GSM8K", "eval")])
    # Also where the evaluation names them itself, by another id, among others.
    hanoi = "{id='game:TowerofHanoi-v0-easy'}"
    other = table("math:Math12K", dataset="sample")
    assert parts(f"{hanoi}, {SAMPLE}", f"{MATH500}, {other}, {hanoi}") == [
        [("game:TowerofHanoi-v0-easy", None), ("math:GSM8K", "train")],
        [("eval:MATH500", None), ("math:Math12K", "eval"), ("game:TowerofHanoi-v0-easy", None)],
    ]


@pytest.mark.parametrize(
    ("first", "second", "divided"),
    [
        (table(dataset="a/b", split="train"), table(dataset="a/b", split="train"), True),
        (table(dataset="a/b", split="train"), table(dataset="a/b", split="test"), False),
        (table(dataset="a/b"), table(dataset="a/b", split="train"), True),
        (table(dataset="a/b", revision="1"), table(dataset="a/b", revision="2"), True),
        (table(dataset="a/b", subset="x"), table(dataset="a/b", subset="y"), False),
        (table(dataset="a/b"), table(dataset="a/c"), False),
        (table(dataset="rows.jsonl"), table(dataset="./rows.jsonl"), True),
        (table("code:CodeContest"), table("eval:CodeContest"), False),
    ],
)
def test_what_counts_as_the_same_data(first, second, divided):
    both = [part for environments in parts(first, second) for _, part in environments]
    assert both == (["train", "eval"] if divided else [None, None])


def test_a_part_of_the_recipe_is_kept():
    assert parts(table(dataset="sample", part="all")) == [[("math:GSM8K", "all")]] * 2
    chosen = table(dataset="sample", part="eval")
    assert parts(SAMPLE, chosen) == [[("math:GSM8K", "train")], [("math:GSM8K", "eval")]]
    on_training_items = table(dataset="sample", part="train")
    assert parts(SAMPLE, on_training_items) == [[("math:GSM8K", "train")]] * 2


@pytest.mark.parametrize("other", ["held_out=0.5", "columns={question='q', answer='answer'}"])
def test_two_ways_to_divide_the_same_data_are_refused(other, tmp_path):
    path = f"dataset='{tmp_path}/rows.jsonl'"
    first = f"{{id='math:GSM8K', kwargs={{{path}}}}}"
    with pytest.raises(RecipeError, match="give both environments the same"):
        parts(first, f"{{id='math:GSM8K', kwargs={{{path}, {other}}}}}")


def test_the_fingerprints_tell_the_parts_apart():
    recipe = load_recipe(GUESS, "tiny", [f"env=[{SAMPLE}]"])
    made = [
        gem_core.make(config.id, **config.kwargs).spec.fingerprint()
        for split in ("train", "eval")
        for config in split_envs(recipe, split)
    ]
    whole = gem_core.make("math:GSM8K", dataset="sample").spec.fingerprint()
    assert len({*made, whole}) == 3
