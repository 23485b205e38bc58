"""The released packages' environments behave as gem-core's do, and as they do by themselves."""

from __future__ import annotations

import random
from typing import Any

import gem
import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env as check_gymnasium

import gem_core
from gem_bridges.as_gymnasium import GymnasiumTask
from gem_bridges.gem_llm import list_gem_envs
from gem_core.env.checker import check_env
from gem_core.errors import MissingDependencyError, RecipeError, UnknownNameError

FROZEN = {"render_mode": "ansi", "actions": ["left", "down", "right", "up"]}
SUBJECTS: list[tuple[str, dict[str, Any]]] = [
    ("gem:game:GuessTheNumber-v0-easy", {}),
    ("gem:game:Sudoku-v0-easy", {}),
    ("gem:game:Minesweeper-v0-easy", {"wrappers": "concat"}),
    ("gem:rg:letter_counting", {}),
    ("gymnasium:FrozenLake-v1", FROZEN),
    ("gymnasium:text_task:Echo-v0", {}),
    ("textarena:GuessTheNumber-v0", {}),
    ("textarena:TowerOfHanoi-v0", {}),
]
GAMES = ["GuessTheNumber", "Sudoku", "Mastermind", "Minesweeper", "TowerofHanoi", "FifteenPuzzle"]


@pytest.mark.parametrize(("name", "kwargs"), SUBJECTS, ids=[name for name, _ in SUBJECTS])
def test_the_checker_passes(name: str, kwargs: dict[str, Any]) -> None:
    check_env(name, seeds=(0, 1), steps=10, **kwargs)


@pytest.mark.parametrize(
    "wrappers", ["", "concat", "concat_with_action", "concat,episode_tracking"]
)
@pytest.mark.parametrize("game", GAMES)
def test_gems_episodes_are_gems_own(game: str, wrappers: str) -> None:
    from gem.wrappers.wrapper_factory import WRAPPER_FACTORY

    name = f"game:{game}-v0-easy"
    theirs = gem.make(name)
    for wrapper in filter(None, wrappers.split(",")):
        theirs = WRAPPER_FACTORY[wrapper](theirs)
    ours = gem_core.make(f"gem:{name}", wrappers=wrappers)
    for seed in range(5):
        actions = [f"\\boxed{{{k} {k}}} \\boxed{{{k}}}" for k in range(1, 9)]
        state = theirs.reset(seed=seed)
        shown = ours.reset(seed=seed)
        assert shown[0] == state[0]
        for action in actions:
            expected = theirs.step(action)
            got = ours.step(action)
            assert got[:3] == (expected[0], expected[1], expected[2])
            assert got[3] == (expected[3] and not expected[2])
            if expected[2] or expected[3]:
                assert got[4]["success"] == (expected[1] >= 1 and expected[2])
                break


def test_a_seed_of_reasoning_gym_does_not_depend_on_what_was_played() -> None:
    env = gem_core.make("gem:rg:letter_counting", size=20)
    question = env.reset(seed=3)[0]
    for seed in range(40):
        env.reset(seed=seed)
    assert env.reset(seed=3)[0] == question


def test_every_id_of_gem_has_a_spec() -> None:
    names = list_gem_envs()
    assert len(names) > 150
    assert all(gem_core.spec(name).load() for name in names)


@pytest.mark.parametrize(
    ("name", "kwargs", "error", "text"),
    [
        ("gem:game:Sudoku-v0-esy", {}, UnknownNameError, "Sudoku-v0-easy"),
        ("gem:game:Sudoku-v0-easy", {"clue": 3}, UnknownNameError, "clues"),
        ("gem:game:Sudoku-v0-easy", {"wrappers": "conct"}, UnknownNameError, "concat"),
        ("gem:game:Sudoku-v0-easy", {"wrappers": "concat_chat"}, RecipeError, "chat template"),
        ("gymnasium:text_task:Numbers-v0", {}, RecipeError, "ansi"),
        ("gymnasium:FrozenLake-v1", {**FROZEN, "actions": ["a"]}, RecipeError, "4 actions"),
        ("textarena:GuessTheNumbr-v0", {}, UnknownNameError, "GuessTheNumber-v0"),
        ("textarena:TicTacToe-v0", {"players": 2}, RecipeError, "opponent"),
    ],
)
def test_mistakes_are_told(
    name: str, kwargs: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        gem_core.make(name, **kwargs)


def test_the_version_of_a_package_is_in_the_fingerprint() -> None:
    env = gem_core.make("gem:game:Sudoku-v0-easy")
    assert env.spec is not None
    assert env.spec.data_revision == "gem-llm==0.1.0"


def test_an_environment_that_forgets_its_seed_is_told() -> None:
    env = gem_core.make("gymnasium:text_task:Careless-v0")
    with pytest.warns(RuntimeWarning, match="different tasks"):
        info = env.reset(seed=1)[1]
    assert info["bridge"]["seeds"] == "do not decide"


def test_a_wrong_action_of_a_numbered_space_changes_nothing() -> None:
    env = gem_core.make("gymnasium:FrozenLake-v1", is_slippery=False, **FROZEN)
    first = env.reset(seed=0)[0]
    assert first.strip().startswith("[S]FFF")
    answer = env.step("forwards")
    assert answer[4]["error"] == "invalid_action"
    assert "left, down, right, up" in answer[0]
    assert (
        env.step("\\boxed{left} or \\boxed{Right}")[0].strip().endswith("S[F]FF\nFHFH\nFFFH\nHFFG")
    )


@pytest.mark.parametrize("name", ["game:GuessTheNumber-v0-easy", "game:Sudoku-v0-easy"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_gymnasium_accepts_our_environments(name: str) -> None:
    check_gymnasium(GymnasiumTask(name), skip_render_check=True)


def test_there_and_back_is_the_same_episode() -> None:
    gymnasium.register("Ours-v0", GymnasiumTask, kwargs={"env": "game:GuessTheNumber-v0-easy"})
    there = gem_core.make("gymnasium:Ours-v0", disable_env_checker=True)
    here = gem_core.make("game:GuessTheNumber-v0-easy")
    for seed in range(5):
        observation, info = here.reset(seed=seed)
        assert there.reset(seed=seed)[0] == f"{observation}\n{info['suffix']}"
        for guess in (5, 3, 8, 1):
            expected = here.step(f"\\boxed{{{guess}}}")
            assert there.step(f"\\boxed{{{guess}}}")[1:4] == expected[1:4]
            if expected[2]:
                break


def test_a_game_of_two_with_an_opponent() -> None:
    kwargs = {"players": 2, "seat": 1, "opponent": "text_task:first_free"}
    env = gem_core.make("textarena:TicTacToe-v0", **kwargs)
    transcripts = []
    for _ in range(2):
        rng = random.Random(0)
        results: list[Any] = [env.reset(seed=4)]
        while len(results) < 50 and not (len(results) > 1 and results[-1][2]):
            results.append(env.step(f"[{rng.randint(0, 8)}]"))
        transcripts.append([result[:4] for result in results])
    assert transcripts[0] == transcripts[1]
    assert results[-1][1] in (-1.0, 0.0, 1.0)
    assert isinstance(results[-1][4]["success"], bool)


def test_a_package_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from gem_bridges.textarena_env import TextArenaEnv

    monkeypatch.setattr(TextArenaEnv, "distribution", "no-such-package")
    with pytest.raises(MissingDependencyError, match="no-such-package"):
        gem_core.make("textarena:GuessTheNumber-v0")
