"""Crosswords."""

from __future__ import annotations

import re

import pytest

import gem_core
from gem_core.envs.data.clues import clues
from gem_core.envs.players import get_player

EASY, HARD = "game:Crosswords-v0-easy", "game:Crosswords-v0-hard"
CLUE = re.compile(r"(across|down) from row (\d+), column (\d+), (\d+) letters: (.*)")


def cells(env: gem_core.Env) -> dict[tuple[int, int], str]:
    lines = env._solution
    return {divmod(i, env._cols): c for i, c in enumerate(lines) if c != "."}


def test_clues_are_well_formed() -> None:
    everything = clues(False) + clues(True)
    assert len(everything) >= 100
    assert len({w for w, _ in everything}) == len({c for _, c in everything}) == len(everything)
    for word, clue in everything:
        assert re.fullmatch("[A-Z]{3,12}", word) and clue.strip() == clue
        assert word.lower() not in clue.lower()


@pytest.mark.parametrize("env_id", [EASY, HARD])
def test_clues_name_the_place_of_their_words(env_id: str) -> None:
    env = gem_core.make(env_id)
    for seed in range(60):
        env.reset(seed=seed)
        letters = cells(env)
        covered = set()
        listed = CLUE.findall(env._clues)
        assert len(listed) == 3
        for way, row, col, length, clue in listed:
            places = [
                (int(row) + i * (way == "down"), int(col) + i * (way == "across"))
                for i in range(int(length))
            ]
            word = "".join(letters[p] for p in places)
            assert (word, clue) in clues(env_id == HARD)
            covered.update(places)
        assert covered == set(letters)
        assert len(letters) <= env._budget


def test_words_touch_only_where_they_cross() -> None:
    env = gem_core.make(HARD)
    for seed in range(60):
        env.reset(seed=seed)
        lines = [env._solution[r * env._cols :][: env._cols] for r in range(env._rows)]
        columns = ["".join(column) for column in zip(*lines, strict=True)]
        runs = [run for line in lines + columns for run in line.split(".") if len(run) > 1]
        assert sorted(runs) == sorted(
            word for word, clue in clues(True) if f": {clue}" in env._clues
        )


def test_right_letters_add_up_to_one() -> None:
    env = gem_core.make(EASY)
    env.reset(seed=4)
    total = 0.0
    for (row, col), letter in cells(env).items():
        obs, reward, terminated, _, info = env.step(f"\\boxed{{{row} {col} {letter.lower()}}}")
        total += reward
        assert "is right" in obs and info["suffix"].splitlines()[row + 1].split()[col + 1] == letter
    assert (terminated, info["success"]) == (True, True) and total == pytest.approx(1)


def test_wrong_letters_are_not_entered() -> None:
    env = gem_core.make(EASY)
    _, before = env.reset(seed=4)
    (row, col), letter = next(iter(cells(env).items()))
    other = "Q" if letter != "Q" else "Z"
    obs, reward, terminated, _, info = env.step(f"\\boxed{{{row}, {col}, {other}}}")
    assert "is wrong" in obs and (reward, terminated) == (0.0, False)
    assert info["suffix"] == before["suffix"] and "error" not in info


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ("0 0", "format"),
        ("0 0 AB", "format"),
        ("a 0 A", "format"),
        ("0 0 1", "format"),
        ("99 0 A", "action"),
        ("-1 0 A", "action"),
    ],
)
def test_errors(answer: str, error: str) -> None:
    env = gem_core.make(EASY)
    env.reset(seed=0)
    assert env.step(f"\\boxed{{{answer}}}")[4]["error"] == f"invalid_{error}"


def test_cells_without_a_letter_and_filled_ones_are_invalid() -> None:
    env = gem_core.make(EASY, max_turns=99)
    for seed in range(20):
        env.reset(seed=seed)
        if "." in env._solution:
            break
    row, col = divmod(env._solution.index("."), env._cols)
    assert "has no letter" in env.step(f"\\boxed{{{row} {col} A}}")[0]
    (row, col), letter = next(iter(cells(env).items()))
    env.step(f"\\boxed{{{row} {col} {letter}}}")
    assert "filled already" in env.step(f"\\boxed{{{row} {col} {letter}}}")[0]


def test_the_random_variant_has_turns_to_spare() -> None:
    env = gem_core.make("game:Crosswords-v0-random")
    for seed in range(40):
        env.reset(seed=seed)
        assert env._budget == len(cells(env)) + 10


def test_few_clues_are_the_first_of_the_list():
    env = gem_core.make("game:Crosswords-v0-easy", num_words=1, num_clues=3)
    shown = {
        env.reset(seed=seed)[1]["suffix"].split(": ")[-1].splitlines()[0] for seed in range(30)
    }
    assert shown == {clue for _, clue in clues(False)[:3]}


def test_fewer_clues_than_words_are_refused():
    with pytest.raises(ValueError, match="num_clues must be at least num_words"):
        gem_core.make("game:Crosswords-v0-easy", num_words=3, num_clues=2)


@pytest.mark.parametrize("hidden", [1, 2, 99])
def test_hidden_letters_are_all_that_is_to_be_found(hidden: int) -> None:
    env_id = "game:Crosswords-v0-easy"
    env = gem_core.make(env_id, num_words=1, num_clues=6, hidden_letters=hidden, max_turns=None)
    shown = set()
    for seed in range(20):
        observation, info = env.reset(seed=seed)
        solution = env.get_state()["fields"]["_solution"]
        empty = info["suffix"].splitlines()
        grid = [line.split()[1:] for line in empty[1 : 1 + env.get_state()["fields"]["_rows"]]]
        cells = "".join(cell for row in grid for cell in row)
        shown.add(cells)
        assert cells.count("_") == min(hidden, len(solution))
        assert all(a in ("_", b) for a, b in zip(cells, solution, strict=True))
        player = get_player("expert", env_id, seed, env=env)
        player.reset(observation, info)
        total, turns, over = 0.0, 0, False
        while not over:
            observation, reward, over, _, info = env.step(player.act(observation, info))
            total, turns = total + reward, turns + 1
        assert info["success"] and turns == min(hidden, len(solution))
        assert total == pytest.approx(1.0)
    assert len(shown) > 3 or hidden == 99  # other letters in other episodes
    with pytest.raises(ValueError, match="hidden_letters must be at least 1"):
        gem_core.make(env_id, hidden_letters=0)
