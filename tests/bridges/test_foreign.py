"""What all environments of other packages have in common, with small ones that draw badly."""

from __future__ import annotations

import pickle
import random
import threading
import warnings
from itertools import count
from typing import Any

import numpy as np
import pytest

import gem_core
from gem_bridges import foreign
from gem_bridges.foreign import ForeignEnv, foreign_seed
from gem_bridges.global_random import GlobalRandom
from gem_bridges.gymnasium_env import plain_text
from gem_core.errors import EpisodeStateError, MissingDependencyError, UnknownNameError
from gem_core.results.data import data_lines
from gem_core.runs.environments.description import describe_environments
from gem_core.runs.recipe.load import load_recipe

_serial = count()


class Drawing(ForeignEnv):
    """Draws from both global generators at each call, as environments of other packages do."""

    distribution = "numpy"  # any package that is installed

    def _make(self) -> Any:
        return [random.random()]

    def _foreign_reset(self, seed: int, options: dict[str, Any] | None) -> tuple[str, Any]:
        return f"{random.random()} {np.random.rand()}", {}

    def _foreign_step(self, action: str) -> Any:
        return f"{action} {random.random()} {np.random.rand()}", 0.0, False, False, {}


class Unseeded(Drawing):
    """Draws from what no seed reaches."""

    def _foreign_reset(self, seed: int, options: dict[str, Any] | None) -> tuple[str, Any]:
        return f"task {next(_serial)}", {}


@pytest.fixture(autouse=True)
def _measure_again() -> None:
    foreign._measured.clear()


def episode(env: ForeignEnv, seed: int | None) -> list[Any]:
    return [env.reset(seed=seed), env.step("a"), env.step("b")]


def test_the_same_seed_is_the_same_episode_whatever_else_draws() -> None:
    first = episode(Drawing("x"), 7)
    random.seed(1)
    np.random.seed(1)
    env = Drawing("x")
    env.reset(seed=7)
    random.random()
    again = [env.reset(seed=7), env.step("a")]
    np.random.rand(5)
    again.append(env.step("b"))
    assert again == first
    assert episode(Drawing("x"), 8) != first
    assert first[0][1]["bridge"]["seeds"] == "decide"


def test_the_generators_of_the_process_are_left_as_they_are() -> None:
    random.seed(3)
    np.random.seed(3)
    expected = (random.random(), np.random.rand())
    random.seed(3)
    np.random.seed(3)
    episode(Drawing("x"), 7)
    assert (random.random(), np.random.rand()) == expected


def test_also_after_an_exception() -> None:
    random.seed(3)
    expected = random.random()
    random.seed(3)
    with pytest.raises(ZeroDivisionError), GlobalRandom(1).in_place():
        random.random()
        raise ZeroDivisionError
    assert random.random() == expected


def test_interleaved_and_in_threads() -> None:
    expected = {seed: episode(Drawing("x"), seed) for seed in range(8)}
    got: dict[int, list[Any]] = {}

    def play(seed: int) -> None:
        env = Drawing("x")
        for _ in range(20):
            got[seed] = episode(env, seed)

    threads = [threading.Thread(target=play, args=(seed,)) for seed in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == expected


def test_without_a_seed_the_episodes_follow_from_the_last_one() -> None:
    one, two = Drawing("x"), Drawing("x")
    assert episode(one, 5) == episode(two, 5)
    follow = episode(one, None)
    assert follow == episode(two, None)
    assert follow != episode(one, None)


def test_states_and_pickles_continue_the_episode() -> None:
    env = Drawing("x")
    env.reset(seed=7)
    env.step("a")
    other = Drawing("x")
    other.set_state(env.get_state())
    copy = pickle.loads(pickle.dumps(env))
    expected = [env.step("b"), env.reset()]
    assert [other.step("b"), other.reset()] == expected
    assert [copy.step("b"), copy.reset()] == expected


def test_seeds_that_do_not_decide_are_told() -> None:
    env = Unseeded("y")
    with pytest.warns(RuntimeWarning, match="y of numpy==.*different tasks"):
        info = env.reset(seed=1)[1]
    assert info["bridge"]["seeds"] == env.seeds == "do not decide"
    with pytest.raises(EpisodeStateError, match="no state"):
        env.get_state()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # once in a process
        assert Unseeded("y").reset(seed=1)[1]["bridge"]["seeds"] == "do not decide"


def test_a_run_records_whether_seeds_decide() -> None:
    gem_core.register("foreign:Drawing-v0", f"{__name__}:Drawing", name="d")
    gem_core.register("foreign:Unseeded-v0", f"{__name__}:Unseeded", name="u")
    tables = "[{id='foreign:Drawing-v0'}, {id='foreign:Unseeded-v0'}]"
    recipe = load_recipe("guess-the-number-easy", "tiny", [f"env={tables}"])
    with pytest.warns(RuntimeWarning, match="different tasks"):
        rows = describe_environments(recipe)
    assert [row["provenance"] for row in rows] == [{"seeds": "decide"}, {"seeds": "do not decide"}]
    lines = data_lines(rows)
    assert "seeds" not in lines[0]
    assert lines[1].endswith("its seeds DO NOT DECIDE the episodes")


def test_seeds_of_32_bits_are_handed_over() -> None:
    assert [foreign_seed(seed) for seed in (0, 7, 2**32 - 1)] == [0, 7, 2**32 - 1]
    others = [foreign_seed(seed) for seed in (-1, -2, 2**32, 2**70)]
    assert len(set(others)) == 4
    assert all(0 <= seed < 2**32 for seed in others)


def test_the_namespaces_of_other_packages_are_ids() -> None:
    spec = gem_core.spec("gem:game:Sudoku-v0-easy")
    assert dict(spec.kwargs) == {"name": "game:Sudoku-v0-easy"}
    assert spec.load().__name__ == "GemLlmEnv"
    with pytest.raises(UnknownNameError):
        gem_core.spec("gem:")


def test_a_missing_package_is_told() -> None:
    class Missing(Drawing):
        distribution = "no-such-distribution"

    with pytest.raises(MissingDependencyError, match=r"pip install 'gem-core\[no-such-dist"):
        Missing("x")


def test_colours_that_mean_something_become_brackets() -> None:
    assert plain_text("  (Up)\n\x1b[41mS\x1b[0mF\x1b[1mG\x1b[0m") == "  (Up)\n[S]FG"
