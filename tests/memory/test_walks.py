"""The tasks that need memory: what is asked was told long before, and nothing else tells it."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import pytest

import gem_core
from gem_core.env.checker import check_env
from gem_core.envs.players import get_player, play_episode
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.task_overlap import task_overlap
from gem_memory.doors import Doors
from gem_memory.walk import Walk
from gem_memory.whereabouts import Whereabouts

IDS = ("memory:Doors-v0-easy", "memory:Doors-v0-hard", "memory:Whereabouts-v0-easy",
       "memory:Whereabouts-v0-hard")  # fmt: skip


def stops(env: Any, seed: int) -> list[list[Any]]:
    """Return the stops of a walk: kind, subject, number."""
    env.reset(seed=seed)
    found: list[list[Any]] = env.get_state()["fields"]["_stops"]
    return found


def answer(env: Any, stop: list[Any], *, right: bool = True) -> str:
    kind, _, number = stop
    return f"\\boxed{{{number + (not right) if kind == 'asks' else 'go'}}}"


@pytest.mark.parametrize("env_id", IDS)
def test_it_keeps_the_interface(env_id: str) -> None:
    check_env(env_id)


@pytest.mark.parametrize("env_id", IDS)
def test_an_expert_wins_and_chance_does_not(env_id: str) -> None:
    env = gem_core.make(env_id)
    wins = {"expert": 0, "random": 0}
    for seed in range(60):
        for kind in wins:
            player = get_player(kind, env_id, seed, env=env)
            result = play_episode(env, player, seed=seed)
            assert result.turns == env.unwrapped.max_turns  # type: ignore[attr-defined]
            wins[kind] += result.success
    assert wins["expert"] == 60 and wins["random"] <= 8


@pytest.mark.parametrize("env_id", IDS)
def test_what_is_asked_was_told_long_before(env_id: str) -> None:
    """The last time that a subject is told is at least an eighth of the walk before the question,
    and nothing about it is shown between."""
    env = gem_core.make(env_id)
    for seed in range(100):
        walk = stops(env, seed)
        for place, (kind, subject, number) in enumerate(walk):
            if kind != "asks":
                continue
            told = [k for k, stop in enumerate(walk) if stop[:2] == ["tells", subject]]
            assert walk[told[-1]][2] == number
            assert place - told[-1] > len(walk) // 8


@pytest.mark.parametrize("env_id", IDS)
def test_what_is_told_is_in_the_observations(env_id: str) -> None:
    """A history that rewrites prompts from earlier observations, without the board, has it."""
    env = gem_core.make(env_id)
    for seed in range(20):
        walk = stops(env, seed)
        assert walk[0][0] == "plain"
        for stop, following in pairwise(walk):
            obs, _, _, _, info = env.step(answer(env, stop))
            assert "suffix" not in info
            if following[0] == "tells":
                assert f"{following[1]} " in obs and f" {following[2]}." in obs


def test_a_parcel_is_moved_so_that_what_was_told_first_is_wrong() -> None:
    env = gem_core.make("memory:Whereabouts-v0-easy")
    stale = 0
    for seed in range(100):
        walk = stops(env, seed)
        first: dict[str, int] = {}
        for kind, subject, number in walk:
            if kind == "tells":
                first.setdefault(subject, number)
            elif kind == "asks":
                stale += first[subject] != number
        boxes = [(s[1], s[2]) for s in walk if s[0] == "tells"]
        for name in first:  # a move leads to another box
            own = [number for subject, number in boxes if subject == name]
            assert all(a != b for a, b in pairwise(own))
    assert stale > 120  # of 200 questions


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_each_right_answer_earns_its_share(wrong: int) -> None:
    env = gem_core.make("memory:Doors-v0-easy")
    walk = stops(env, 5)
    left, total, over, info = wrong, 0.0, False, {}
    for stop in walk:
        assert not over
        right = stop[0] != "asks" or left == 0
        left -= not right
        _, reward, over, truncated, info = env.step(answer(env, stop, right=right))
        assert not truncated
        total += reward
    assert over and total == pytest.approx(1 - wrong / 2)
    assert info["success"] == (wrong == 0)
    assert info["end"] == ("solved" if wrong == 0 else "wrong_answers")


def test_another_answer_where_nothing_is_asked_earns_nothing_and_leads_on() -> None:
    env = gem_core.make("memory:Doors-v0-easy", max_turns=8, doors=1)
    for stop in stops(env, 1):
        said = answer(env, stop) if stop[0] == "asks" else "\\boxed{3}"
        obs, reward, over, _, info = env.step(said)
        assert reward == (stop[0] == "asks")
        assert ("Nothing was asked" in obs) == (stop[0] != "asks")
    assert over and info["success"]


def test_no_number_at_a_question_is_a_format_error_which_ends_the_walk() -> None:
    env = gem_core.make("memory:Doors-v0-easy")
    for stop in stops(env, 2):
        if stop[0] == "asks":
            break
        env.step("\\boxed{go}")
    _, reward, over, _, info = env.step("\\boxed{go}")
    assert (reward, over, info["error"]) == (-0.1, True, "invalid_format")


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"doors": 11}, "1 to 10"),
        ({"doors": 3, "max_turns": 11}, "at least four times as many (12)"),
        ({"numbers": 1}, "numbers must be at least 2"),
    ],
)
def test_impossible_parameters_are_refused(kwargs: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("(", r"\(").replace(")", r"\)")):
        gem_core.make("memory:Doors-v0-easy", **kwargs)


def play(env: Walk, player: Any, seed: int, summaries: int) -> str:
    """Play a walk with summaries after every so many stops; return the last one."""
    obs, info = env.reset(seed=seed)
    player.reset(obs, info)
    text, over, turn = "", False, 0
    while not over:
        obs, _, over, _, info = env.step(player.act(obs, info))
        turn += 1
        if turn % summaries == 0:
            text = player.sum_up()
    return text


@pytest.mark.parametrize("kind", [Doors, Whereabouts])
def test_a_summary_has_the_last_number_of_each_subject(kind: type[Walk]) -> None:
    env = kind(max_turns=16)
    player = get_player("expert", "memory:Doors-v0-easy", 0, env=env)
    text = play(env, player, 4, 8)
    walk = env.get_state()["fields"]["_stops"]
    known = {subject: number for kind_, subject, number in walk if kind_ == "tells"}
    told = ", ".join(f"{name} {number}" for name, number in known.items())
    assert text == f"Known: {told}."


@pytest.mark.parametrize(("name", "kept_share"), [("forgets", 0.75), ("forgets-most", 0.4)])
def test_the_weak_players_leave_a_share_out_of_each_summary(name: str, kept_share: float) -> None:
    env = Doors(doors=4, max_turns=40)
    kept = 0
    for seed in range(200):
        player = get_player(name, "memory:Doors-v0-easy", seed, env=env)
        text = play(env, player, seed, 20)  # at the second one it knows the first one's subjects
        kept += 0 if text == "Known: nothing." else text.count(",") + 1
    assert kept / 800 == pytest.approx(kept_share**2, abs=0.05)


@pytest.mark.parametrize("env_id", ["memory:Doors-v0-easy", "memory:Whereabouts-v0-easy"])
def test_no_task_of_the_evaluation_is_trained_on(env_id: str) -> None:
    of_env = [f"env.0.id={env_id}", "env.0.kwargs={held_out = 0.3}"]
    counts = task_overlap(load_recipe("guess-the-number-easy", "tiny", of_env))
    assert counts is not None
    assert counts["seen_in_training"] == 0 and counts["distinct"] >= 100


def test_a_random_answer_is_a_number_of_the_task_only_where_one_is_asked() -> None:
    env = gem_core.make("memory:Doors-v0-easy")
    rng = Random(0)
    for stop in stops(env, 3):
        said = env.random_action(rng)
        assert (said == "\\boxed{go}") == (stop[0] != "asks")
        env.step(said)
