"""Word Search."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

import gem_core
from gem_core.envs.data.words import upper_words
from gem_core.envs.games.word_grid import lay_words
from gem_core.envs.games.word_search import _fill
from gem_core.envs.players import get_player
from gem_core.errors import GemError

EASY, HARD = "game:WordSearch-v0-easy", "game:WordSearch-v0-hard"


def hidden(env: gem_core.Env) -> Iterator[tuple[str, int, int]]:
    return zip(env._words, env._ends[::2], env._ends[1::2], strict=True)


def place(env: gem_core.Env, k: int) -> list[int]:
    start, end = env._ends[2 * k : 2 * k + 2]
    return [*divmod(start, env._side), *divmod(end, env._side)]


def step(env: gem_core.Env, where: list[int]) -> tuple[str, float, bool, bool, dict[str, object]]:
    return env.step(f"\\boxed{{{' '.join(map(str, where))}}}")


@pytest.mark.parametrize("env_id", [EASY, HARD])
def test_words_are_where_the_solution_places_them(env_id: str) -> None:
    env = gem_core.make(env_id)
    words = set(upper_words("english" if env_id == HARD else "basic"))
    for seed in range(60):
        env.reset(seed=seed)
        side = env._side
        assert len(env._grid) == side**2 and env._grid.isalpha() and env._grid.isupper()
        assert side == round(1.5 * max(map(len, env._words)))
        for word, start, end in hidden(env):
            across = start // side == end // side
            assert env._grid[start : end + 1 : 1 if across else side] == word
            assert word in words
        assert len(set(env._words)) == 5


def test_finding_all_words_earns_one() -> None:
    env = gem_core.make(HARD)
    env.reset(seed=2)
    results = [step(env, place(env, k)) for k in range(5)]
    assert [r[1] for r in results] == [pytest.approx(0.2)] * 5
    assert [r[2] for r in results] == [False] * 4 + [True]
    assert results[-1][4]["success"] is True
    cells = set()
    for _, start, end in hidden(env):
        step_size = 1 if end - start < env._side else env._side
        cells.update(range(start, end + 1, step_size))
    assert sum(letter.islower() for letter in env._grid) == len(cells)


def test_a_found_word_never_scores_again() -> None:
    env = gem_core.make(EASY)
    env.reset(seed=2)
    where = place(env, 0)
    assert step(env, where)[1] == pytest.approx(0.2)
    for again in (where, where[2:] + where[:2]):
        _, reward, _, _, info = step(env, again)
        assert (reward, info["error"]) == (0.0, "invalid_action")
    env.reset(seed=2)
    assert step(env, where[2:] + where[:2])[1] == pytest.approx(0.2)
    assert step(env, where)[4]["error"] == "invalid_action"


def test_compat_pays_the_reversed_word_again() -> None:
    env = gem_core.make(EASY, compat="gem-0.1.0")
    env.reset(seed=2)
    where = place(env, 0)
    assert step(env, where)[1] == step(env, where[2:] + where[:2])[1] == pytest.approx(0.2)
    assert step(env, where)[4]["error"] == "invalid_action"


@pytest.mark.parametrize(("compat", "over"), [(None, True), ("gem-0.1.0", False)])
def test_a_second_copy_of_a_word_counts_as_the_word_but_for_gem(
    compat: str | None, over: bool
) -> None:
    env = gem_core.make(EASY, num_words=1, compat=compat)
    env.reset(seed=0)
    word, start, _ = next(iter(hidden(env)))
    side = env._side
    row = 0 if start // side != 0 else side - 1
    state = env.get_state()
    grid = state["fields"]["_grid"]
    state["fields"]["_grid"] = grid[: row * side] + word + grid[row * side + len(word) :]
    env.set_state(state)
    assert step(env, [row, 0, row, len(word) - 1])[2] is over


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ("1 2 3", "format"),
        ("a b c d", "format"),
        ("0 0 1 1", "action"),
        ("0 0 0 99", "action"),
        ("-1 0 -1 2", "action"),
        ("1 2 3 4 5", "format"),
    ],
)
def test_errors(answer: str, error: str) -> None:
    env = gem_core.make(EASY)
    env.reset(seed=0)
    assert env.step(f"\\boxed{{{answer}}}")[4]["error"] == f"invalid_{error}"


def test_a_wrong_attempt_costs_a_turn_and_is_remembered() -> None:
    env = gem_core.make(EASY)
    env.reset(seed=0)
    wrong = [0, 0, 0, 0]
    obs, reward, terminated, _, info = step(env, wrong)
    assert "no hidden word" in obs and (reward, terminated) == (0.0, False) and "error" not in info
    assert step(env, wrong)[4]["error"] == "invalid_action"


def test_letters_between_the_words_are_uniform() -> None:
    text = _fill("." * 26_000, Random(0))
    counts = [text.count(c) for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"]
    assert sum(counts) == 26_000 and all(850 < n < 1150 for n in counts)
    assert _fill("A.B..", Random(1))[::2][:2] == "AB"


def test_words_cross_where_they_can() -> None:
    crossed = 0
    for seed in range(50):
        grid = lay_words(["TREE", "ELEMENT", "ROT"], Random(seed), apart=False)
        assert len(grid.placed) == 3
        crossed += len("TREEELEMENTROT") - sum(c != "." for c in grid.cells)
    assert crossed > 30


@pytest.mark.parametrize(("side", "length"), [(3, 3), (4, 3), (4, 4)])
def test_with_a_side_the_words_are_anywhere(side: int, length: int) -> None:
    kwargs = {"words": "syllables", "word_length": length, "side": side, "num_words": 1}
    env = gem_core.make(EASY, max_turns=30, **kwargs)
    places = set()
    wins = 0
    for seed in range(150):
        observation, info = env.reset(seed=seed)
        fields = env.get_state()["fields"]
        first, last = fields["_ends"]
        step = 1 if first // side == last // side else side
        assert fields["_side"] == side and len(fields["_grid"]) == side**2
        assert fields["_grid"][first : last + 1 : step] == fields["_words"][0]
        assert "1 made-up words are hidden" in observation
        places.add((first, last))
        player = get_player("expert", EASY, seed, env=env)
        player.reset(observation, info)
        wins += env.step(player.act(observation, info))[4].get("success", False)
    assert len(places) == 2 * side * (side - length + 1)
    assert wins > 60  # most grids have one made-up word only


def test_a_grid_that_is_too_small_is_an_error_and_not_an_endless_search() -> None:
    kwargs = {"words": "syllables", "word_length": 3, "side": 3}
    env = gem_core.make(EASY, num_words=10, **kwargs)
    with pytest.raises(GemError, match="give it fewer words, or a larger side"):
        env.reset(seed=0)
    with pytest.raises(ValueError, match="give word_length too"):
        gem_core.make(EASY, side=3)
    with pytest.raises(ValueError, match="at most as long as the side"):
        gem_core.make(EASY, word_length=4, side=3)
