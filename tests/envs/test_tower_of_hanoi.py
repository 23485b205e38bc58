"""Tower of Hanoi."""

from __future__ import annotations

import pytest

import gem_core

EASY = "game:TowerofHanoi-v0-easy"


def moves(env: gem_core.Env, text: str) -> list[tuple[str, float, bool, bool, dict[str, object]]]:
    return [env.step(f"\\boxed{{{m[0]} {m[1]}}}") for m in text.split()]


def test_the_shortest_solution_earns_one() -> None:
    env = gem_core.make(EASY)
    env.reset(seed=0)
    *before, last = moves(env, "AC AB CB AC BA BC AC")
    assert all(step[1] == 0 and not step[2] for step in before)
    assert (last[1], last[2], last[4]["success"]) == (1.0, True, True)


def test_reward_at_the_limit_is_the_share_of_disks_on_c() -> None:
    env = gem_core.make(EASY, max_turns=3)
    env.reset(seed=0)
    assert moves(env, "AB AC BC")[-1][1:3] == (pytest.approx(2 / 3), True)


@pytest.mark.parametrize(
    ("first", "then", "why"),
    [("", "B A", "empty"), ("A C", "A C", "larger"), ("", "A A", "two different")],
)
def test_invalid_moves_leave_the_disks(first: str, then: str, why: str) -> None:
    env = gem_core.make(EASY)
    _, before = env.reset(seed=0)
    if first:
        before = env.step(f"\\boxed{{{first}}}")[4]
    obs, reward, terminated, _, info = env.step(f"\\boxed{{{then}}}")
    assert why in obs and info["suffix"] == before["suffix"]
    assert (reward, terminated, info["error"]) == (0.0, False, "invalid_action")


def test_compat_allows_a_move_to_the_same_peg() -> None:
    env = gem_core.make(EASY, compat="gem-0.1.0")
    env.reset(seed=0)
    assert "error" not in env.step("\\boxed{A A}")[4]


@pytest.mark.parametrize("answer", ["A C", "a c", "AC", "A,C", "A, C", "A -> C", " A\tC "])
def test_ways_to_write_a_move(answer: str) -> None:
    env = gem_core.make(EASY)
    env.reset(seed=0)
    assert "disk 1 moved from A to C" in env.step(f"\\boxed{{{answer}}}")[0]


def test_the_seed_matters_only_for_a_random_start() -> None:
    env = gem_core.make(EASY)
    assert len({env.reset(seed=s)[1]["suffix"] for s in range(10)}) == 1
    env = gem_core.make(EASY, start="random", num_disks=2)
    starts = {env.reset(seed=s)[1]["suffix"] for s in range(200)}
    assert len(starts) == 3**2 - 1


def test_parameters_are_checked() -> None:
    for kwargs in ({"num_disks": 10}, {"num_disks": 0}, {"start": "B"}):
        with pytest.raises(ValueError, match="must be"):
            gem_core.make(EASY, **kwargs)
