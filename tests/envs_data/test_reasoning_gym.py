"""rg:*: new items per seed, the generators' own scores, and answers that break nothing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import gem_core
from gem_core.envs import _rg_items, _rg_scores
from gem_core.envs._rg_tables import IN_WORKER, NAMES
from gem_core.envs.players import get_player, play_episode
from gem_core.errors import DataError, GemError, UnknownNameError


def test_a_seed_is_an_item_and_items_differ() -> None:
    env = gem_core.make("rg:letter_counting")
    questions = [env.reset(seed=seed)[0] for seed in range(200)]
    assert len(set(questions)) > 190
    assert questions == [env.reset(seed=seed)[0] for seed in range(200)]
    assert "\\boxed{" in questions[0]


def test_the_text_is_that_of_the_package() -> None:
    import reasoning_gym

    env = gem_core.make("rg:chain_sum", min_terms=3, max_terms=3, compat="gem-0.1.0")
    obs, info = env.reset(seed=4)
    dataset = reasoning_gym.create_dataset("chain_sum", seed=0, min_terms=3, max_terms=3)
    assert obs == dataset[info["index"]]["question"]
    assert info["index"] < 500
    assert env.step(f"so \\boxed{{{dataset[info['index']]['answer']}}}")[1] == 1.0


def test_difficulty_options_are_passed_on_and_checked() -> None:
    env = gem_core.make("rg:basic_arithmetic", min_digits=6, max_digits=6, min_terms=2, max_terms=2)
    assert max(len(w) for w in env.reset(seed=0)[0].replace("\n", " ").split()) >= 6
    with pytest.raises(UnknownNameError, match="Did you mean 'min_terms'"):
        gem_core.make("rg:chain_sum", min_term=3)
    with pytest.raises(ValueError):
        gem_core.make("rg:chain_sum", min_terms=5, max_terms=2)
    with pytest.raises(GemError, match="pool"):
        gem_core.make("rg:chain_sum", size=10)


def test_a_pool_limits_the_items_and_an_index_is_exact() -> None:
    env = gem_core.make("rg:chain_sum", pool=7, pick="seed")
    assert [env.reset(seed=s)[1]["index"] for s in range(-1, -8, -1)] == list(range(7))
    first = env.reset(options={"index": 3})[0]
    assert first == gem_core.make("rg:chain_sum").reset(options={"index": 3})[0]
    with pytest.raises(GemError, match="from 0 to 6"):
        env.reset(options={"index": 7})


def test_the_version_is_part_of_the_fingerprint() -> None:
    env = gem_core.make("rg:chain_sum")
    assert env.spec is not None and env.spec.data_revision.startswith("reasoning-gym-0.")
    assert env.spec.fingerprint() != gem_core.spec("rg:chain_sum").fingerprint()
    other = gem_core.EnvSpec(
        env.spec.id, env.spec.entry_point, env.spec.kwargs, "reasoning-gym-0.0.0"
    )
    with pytest.raises(DataError, match="the same data"):
        gem_core.make(other)


@pytest.mark.parametrize("name", NAMES)
def test_a_right_answer_earns_one_and_a_wrong_one_less(name: str) -> None:
    env_id = f"rg:{name}"
    env = gem_core.make(env_id)
    expert = get_player("expert", env_id, 0, env=env)
    chance = get_player("random", env_id, 0, env=env)
    seeds = range(3)
    assert all(play_episode(env, expert, seed=s).reward == 1.0 for s in seeds)
    assert sum(play_episode(env, chance, seed=s).reward for s in seeds) < 3


@pytest.mark.parametrize("name", sorted(IN_WORKER))
def test_worker_generators_leave_the_global_generators_alone(name: str) -> None:
    before = random.getstate()
    env = gem_core.make(f"rg:{name}")
    assert env.slow
    env.reset(seed=1)
    env.step("\\boxed{1}")
    assert random.getstate() == before


@pytest.mark.parametrize(
    "env_id", ["rg:string_insertion", "rg:spiral_matrix", "rg:binary_matrix", "rg:n_queens"]
)
def test_an_answer_is_never_run_as_code(env_id: str, tmp_path: Path) -> None:
    env = gem_core.make(env_id)
    env.reset(seed=0)
    target = tmp_path / "written"
    _, reward, terminated, _, info = env.step(f"\\boxed{{open({str(target)!r}, 'w').write('x')}}")
    assert reward < 0.5 and terminated and not info["success"]
    assert not target.exists()


@pytest.mark.parametrize("env_id", ["rg:countdown", "rg:puzzle24", "rg:simple_integration"])
def test_an_expression_is_only_arithmetic(env_id: str, tmp_path: Path) -> None:
    env = gem_core.make(env_id)
    target = tmp_path / "written"
    for answer in (f"open('{target}', 'w')", "eval(chr(49))", "x.__class__", "(1).real"):
        env.reset(seed=0)
        assert env.step(f"\\boxed{{{answer}}}")[1] == 0
    assert not target.exists()
    assert _rg_scores.harmless("3*x**2 + sin(x)/2 - log(x)")


def test_a_tower_of_powers_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gem_core.envs.reasoning_gym.SCORE_S", 1.0)
    env = gem_core.make("rg:countdown")
    env.reset(seed=0)
    _, reward, _, _, info = env.step("\\boxed{9**9**9**9**9}")
    assert reward == 0 and info["grader_error"]
    env.reset(seed=0)
    assert env.step(env.peek())[1] == 1.0  # the next answer is not affected


@pytest.mark.parametrize(
    ("env_id", "wrong"), [("rg:game_of_life_halting", "maybe"), ("rg:puzzle24", "6*4*1/1")]
)
def test_two_generous_scorers_are_made_strict(env_id: str, wrong: str) -> None:
    for compat, reward in ((None, 0.0), ("gem-0.1.0", 1.0)):
        env = gem_core.make(env_id, compat=compat)
        env.reset(seed=2)
        assert env.step(f"\\boxed{{{wrong}}}")[1] == reward


def test_a_scorer_that_raises_counts_as_wrong() -> None:
    env = gem_core.make("rg:boxnet")
    env.reset(seed=0)
    _, reward, terminated, _, info = env.step("\\boxed{42}")
    assert (reward, terminated, info["success"]) == (0.0, True, False)
    assert info["grader_error"].startswith("TypeError")


def test_composite_mixes_generators() -> None:
    parts = [
        {"name": "chain_sum", "weight": 3, "config": {"min_terms": 2, "max_terms": 2}},
        {"name": "acre"},
    ]
    env = gem_core.make("rg:composite", datasets=parts)
    sources = [env.reset(seed=s)[1]["source"] for s in range(400)]
    assert 260 < sources.count("chain_sum") < 340
    env.reset(seed=0)
    assert env.step(env.peek())[4]["success"]
    with pytest.raises(UnknownNameError, match="chain_sum"):
        gem_core.make("rg:composite", datasets=[{"name": "chain_sun"}])
    with pytest.raises(GemError, match="positive"):
        gem_core.make("rg:composite", datasets=[{"name": "acre", "weight": 0}])


def test_programs_of_codeio_give_the_same_item_again() -> None:
    import numpy

    before = random.getstate(), numpy.random.get_state()
    for draw in range(40):
        items = []
        for noise in (1, 2):
            random.seed(noise)
            numpy.random.seed(noise)
            items.append(_rg_items._generate("codeio", {}, draw))
        # A custom config must not change the items of another environment.
        _rg_items._generate("codeio", {"difficulty": 3}, draw)
        assert items[0] == items[1]
    random.setstate(before[0])
    numpy.random.set_state(before[1])


def test_arc_1d_draws_only_the_chosen_rules():
    rules = ["two_points_and_fill", "change_to_five"]
    config = {"min_size": 8, "max_size": 8, "num_train": 1}
    env = gem_core.make("rg:arc_1d", tasks=rules, **config)
    other = gem_core.make("rg:arc_1d", **config)
    drawn = set()
    for seed in range(20):
        env.reset(seed=seed)
        task = env.unwrapped
        drawn.add(_rg_items.item("arc_1d", task._config, task._item)["metadata"]["task_name"])
        assert env.step(env.peek())[1] == 1.0
    assert drawn == set(rules)
    assert env.spec.fingerprint() != other.spec.fingerprint()
    with pytest.raises(UnknownNameError, match="Did you mean 'change_to_five'"):
        gem_core.make("rg:arc_1d", tasks=["change_to_fiv"])
    with pytest.raises(ValueError, match="at least one rule"):
        gem_core.make("rg:arc_1d", tasks=[])
    with pytest.raises(UnknownNameError, match="option of rg:chain_sum"):
        gem_core.make("rg:chain_sum", tasks=rules)
