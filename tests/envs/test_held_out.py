"""Games with ``held_out``: training and evaluation share no initial state."""

from __future__ import annotations

import pytest

import gem_core
from gem_core.errors import GemError, UnknownNameError
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.splits import split_envs
from gem_core.runs.task_overlap import task_overlap

HELD_OUT = "env.0.kwargs={min_number=1, max_number=200, max_turns=8, held_out=0.55}"


def targets(part: str | None, **kwargs: object) -> set[int]:
    env = gem_core.make(
        "game:GuessTheNumber-v0-easy", min_number=1, max_number=200, part=part, **kwargs
    )
    found = set()
    for seed in range(1500):
        env.reset(seed=seed)
        found.add(env.get_state()["fields"]["_target"])  # type: ignore[attr-defined]
    return found


def test_the_parts_are_disjoint_and_together_all() -> None:
    train, evaluation = targets("train", held_out=0.3), targets("eval", held_out=0.3)
    assert train.isdisjoint(evaluation)
    assert train | evaluation == set(range(1, 201)) == targets("all", held_out=0.3)
    assert 0.2 < len(evaluation) / 200 < 0.4


def test_without_a_part_the_tasks_are_those_of_before() -> None:
    plain = gem_core.make("game:GuessTheNumber-v0-easy")
    divided = gem_core.make("game:GuessTheNumber-v0-easy", held_out=0.3)
    for seed in range(20):
        assert plain.reset(seed=seed) == divided.reset(seed=seed)
        assert plain.get_state() == divided.get_state()  # type: ignore[attr-defined]


def test_a_run_gives_each_split_its_part() -> None:
    recipe = load_recipe("guess-the-number-easy", "tiny", [HELD_OUT])
    assert split_envs(recipe, "train")[0].kwargs["part"] == "train"
    assert split_envs(recipe, "eval")[0].kwargs["part"] == "eval"
    counts = task_overlap(recipe)
    assert counts is not None
    assert counts["seen_in_training"] == 0 and counts["distinct"] >= 100
    undivided = task_overlap(load_recipe("guess-the-number-easy", "tiny"))
    assert undivided is not None and undivided["seen_in_training"] == 10


@pytest.mark.parametrize(
    ("env_id", "kwargs"),
    [
        ("game:FifteenPuzzle-v0-easy", {"num_rows": 3}),
        ("game:Hangman-v0-easy", {}),
        ("game:Mastermind-v0-easy", {"code_length": 3, "num_numbers": 8}),
        ("game:Sokoban-v0-easy", {}),
        ("game:Sudoku-v0-easy", {}),
        ("game:TowerofHanoi-v0-easy", {"num_disks": 5, "start": "random"}),
        ("game:Wordle-v0-easy", {}),
    ],
)
def test_no_state_of_a_game_is_in_both_parts(env_id: str, kwargs: dict[str, object]) -> None:
    seen = []
    for part in ("train", "eval"):
        env = gem_core.make(env_id, part=part, held_out=0.4, **kwargs)
        states = set()
        for seed in range(60):
            observation, info = env.reset(seed=seed)
            state = {k: v for k, v in env.get_state().items() if k != "rng"}  # type: ignore[attr-defined]
            states.add(repr((observation, info, state)))
        seen.append(states)
    assert len(seen[0]) > 10 and len(seen[1]) > 10 and seen[0].isdisjoint(seen[1])


def test_a_game_with_one_initial_state_cannot_be_divided() -> None:
    parts = []
    for part in ("train", "eval"):
        env = gem_core.make("game:TowerofHanoi-v0-easy", part=part, held_out=0.5)
        try:
            env.reset(seed=0)
            parts.append(part)
        except GemError as error:
            assert "none is in the part" in str(error)
    assert len(parts) == 1


def test_the_parameters_are_checked() -> None:
    with pytest.raises(UnknownNameError, match="'train', 'eval' and 'all'"):
        gem_core.make("game:Sudoku-v0-easy", part="evals", held_out=0.2)
    with pytest.raises(ValueError, match="held_out must be between 0 and 1"):
        gem_core.make("game:Sudoku-v0-easy", part="eval")
