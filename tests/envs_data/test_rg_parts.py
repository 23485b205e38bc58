"""``held_out`` of ``rg:*``: what an evaluation asks is never asked in training."""

from __future__ import annotations

from typing import Any

import pytest

import gem_core
from gem_core.envs.single_turn import OptionError
from gem_core.errors import GemError, RecipeError, UnknownNameError
from gem_core.evaluation.plan import _has_table
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.splits import split_envs
from gem_core.runs.task_overlap import task_overlap

SEEDS = 2000
EQUATIONS = {
    "max_terms": 2,
    "max_value": 3,
    "operators": ["+", "-"],
    "operators_weights": [0.5, 0.5],
}


def asked(env_id: str, part: str | None, count: int = SEEDS, **kwargs: Any) -> set[str]:
    """The questions of many seeds."""
    env = gem_core.make(env_id, part=part, held_out=0.3, **kwargs)
    questions = set()
    for seed in range(count):
        env.reset(seed=seed)
        questions.add(env.unwrapped.question)
    return questions


@pytest.mark.parametrize(
    ("env_id", "kwargs"),
    [
        ("rg:basic_arithmetic", {"max_terms": 2, "max_digits": 1}),
        ("rg:chain_sum", {"max_terms": 2, "max_digits": 1}),
        ("rg:leg_counting", {"min_animals": 1, "max_animals": 1, "max_instances": 9}),
        ("rg:letter_counting", {"min_words": 1, "max_words": 2}),
        ("rg:spell_backward", {}),
    ],
)
def test_no_question_is_in_both_parts(env_id: str, kwargs: dict[str, Any]) -> None:
    train, evaluation = asked(env_id, "train", **kwargs), asked(env_id, "eval", **kwargs)
    assert len(train) > 50 and len(evaluation) > 20
    assert train.isdisjoint(evaluation)


def test_the_parts_are_together_all() -> None:
    small = {"max_terms": 2, "max_digits": 1}
    train, evaluation = (
        asked("rg:chain_sum", "train", **small),
        asked("rg:chain_sum", "eval", **small),
    )
    assert train | evaluation == asked("rg:chain_sum", "all", **small)
    assert 0.2 < len(evaluation) / len(train | evaluation) < 0.4


def test_an_equation_is_in_one_part_whatever_the_sentence_around_it() -> None:
    parts = []
    for part in ("train", "eval"):
        questions = asked("rg:simple_equations", part, 1500, **EQUATIONS)
        parts.append({question.rpartition(": ")[2] for question in questions})
        assert len(questions) > 1.1 * len(parts[-1])  # the same equation in other sentences
    assert parts[0] and parts[1] and parts[0].isdisjoint(parts[1])


def test_a_row_of_arc_1d_is_in_one_part_whatever_its_examples() -> None:
    rule = {"tasks": ["two_points_and_fill"], "min_size": 8, "max_size": 8, "num_train": 1}
    rows = [
        {question.rpartition("Input:")[2] for question in asked("rg:arc_1d", part, 1500, **rule)}
        for part in ("train", "eval")
    ]
    assert len(rows[0]) > 20 and len(rows[1]) > 20 and rows[0].isdisjoint(rows[1])


def test_a_generator_of_the_worker_process_is_divided_too() -> None:
    parts = [asked("rg:propositional_logic", part, 12) for part in ("train", "eval")]
    assert parts[0].isdisjoint(parts[1])
    assert parts[0] | parts[1]


def test_without_a_part_the_items_are_those_of_before() -> None:
    plain, divided = gem_core.make("rg:chain_sum"), gem_core.make("rg:chain_sum", held_out=0.3)
    for seed in range(50):
        assert plain.reset(seed=seed) == divided.reset(seed=seed)
    assert plain.spec is not None
    assert set(plain.spec.kwargs) == {"name"}


def test_a_state_is_restored_with_its_question_and_draws_on_in_its_part() -> None:
    env, other = (gem_core.make("rg:chain_sum", part="eval", held_out=0.3) for _ in range(2))
    env.reset(seed=5)
    state = env.get_state()  # type: ignore[attr-defined]
    other.set_state(state)  # type: ignore[attr-defined]
    assert other.unwrapped.question == env.unwrapped.question
    assert [env.reset()[0] for _ in range(20)] == [other.reset()[0] for _ in range(20)]


def test_an_item_of_the_other_part_is_refused() -> None:
    env = gem_core.make("rg:chain_sum", part="eval", held_out=0.3)
    item = env.reset(seed=0)[1]["index"]
    env.reset(options={"index": item})
    with pytest.raises(OptionError, match="not in the part 'train'"):
        gem_core.make("rg:chain_sum", part="train", held_out=0.3).reset(options={"index": item})


def test_one_task_cannot_be_divided() -> None:
    refused = []
    for part in ("train", "eval"):
        env = gem_core.make("rg:chain_sum", pool=1, part=part, held_out=0.5)
        try:
            env.reset(seed=0)
        except GemError as error:
            assert "a larger pool, or another held_out" in str(error)
            refused.append(part)
    assert len(refused) == 1


def test_the_parameters_are_checked() -> None:
    with pytest.raises(UnknownNameError, match="'train', 'eval' and 'all'"):
        gem_core.make("rg:chain_sum", part="evals", held_out=0.2)
    with pytest.raises(ValueError, match="held_out must be between 0 and 1"):
        gem_core.make("rg:chain_sum", part="eval")
    with pytest.raises(ValueError, match="leave out pick='seed'"):
        gem_core.make("rg:chain_sum", part="eval", held_out=0.2, pick="seed")


def test_a_run_gives_each_split_its_part() -> None:
    small = "env.0.kwargs={max_terms=2, max_digits=1, held_out=0.3}"
    recipe = load_recipe("chain-sum", "tiny", [small])
    assert split_envs(recipe, "train")[0].kwargs["part"] == "train"
    assert split_envs(recipe, "eval")[0].kwargs["part"] == "eval"
    counts = task_overlap(recipe)
    assert counts is not None
    assert counts["seen_in_training"] == 0 and counts["distinct"] > 30
    other = "eval.env=[{id='rg:chain_sum', kwargs={held_out=0.4}}]"
    with pytest.raises(RecipeError, match="another held_out"):
        split_envs(load_recipe("chain-sum", "tiny", [small, other]), "train")


def test_an_evaluation_of_its_own_plays_seeds_and_not_all_items() -> None:
    assert not _has_table("rg:chain_sum")
    assert not _has_table("game:Sudoku-v0-easy")
    assert _has_table("math:GSM8K")
