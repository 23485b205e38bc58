"""The web shop: search, pages, options, the score of a purchase."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from statistics import mean

import pytest

import gem_core
from gem_core.envs.players import get_player, play_episode
from gem_core.envs.webshop import WebShop
from gem_core.errors import DataError, UnknownNameError
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.splits import split_envs
from gem_core.runs.task_overlap import task_overlap

IDS = gem_core.list_envs("webshop:*")


def shop(**kwargs: object) -> WebShop:
    env = gem_core.make("webshop:train-text", **kwargs)
    assert isinstance(env, WebShop)
    env.reset(seed=0)
    return env


def act(env: WebShop, *actions: str) -> tuple[str, float, bool, bool, dict[str, object]]:
    for action in actions:
        result = env.step(f"\\boxed{{{action}}}")
    return result


def test_six_ids_and_one_catalogue() -> None:
    assert [
        f"webshop:{split}-{rendering}"
        for split in ("test", "train")
        for rendering in ("html", "text", "text_rich")
    ] == IDS
    train = gem_core.make("webshop:train-text")
    test = gem_core.make("webshop:test-text")
    assert len(train._shop.products) >= 60 and train._shop is test._shop
    assert not set(train._goals) & set(test._goals)
    assert train.reset(seed=0)[1]["sample"] is True
    assert train.spec.data_revision.startswith("sample-")


@pytest.mark.parametrize("env_id", IDS)
def test_the_careful_customer_buys_what_is_wanted(env_id: str) -> None:
    env = gem_core.make(env_id)
    expert = [play_episode(env, get_player("expert", env_id, 0), seed=s) for s in range(60)]
    player = get_player("random", env_id, 0, env=env)
    chance = [play_episode(env, player, seed=s) for s in range(60)]
    assert mean(r.success for r in expert) >= 0.95
    assert mean(r.reward for r in chance) < 0.3


def test_the_score_counts_what_is_met() -> None:
    env = shop()
    goal = env._shop.products[env._goal]
    act(env, f"search[{goal.name}]", f"click[{goal.id}]")
    demands = len(env._wanted) + len(env._picks) + 1
    _, reward, terminated, truncated, info = act(env, "click[Buy now]")
    missing = len(env._picks)
    assert reward == pytest.approx((demands - missing) / demands) and reward < 1
    assert (terminated, truncated, info["success"]) == (True, False, False)


def test_another_category_is_worth_a_tenth() -> None:
    env = shop()
    other = next(
        p
        for p in env._shop.products
        if p.category != env._shop.products[env._goal].category and p.price < env._limit
    )
    reward = act(env, f"search[{other.name}]", f"click[{other.id}]", "click[buy now]")[1]
    assert 0 < reward <= 0.1


def test_pages_follow_the_clicks() -> None:
    env = shop()
    _, _, _, _, info = act(env, "search[recycled]")
    assert info["suffix"].startswith("Results from 1 of") and "[Next]" in info["suffix"]
    info = act(env, "click[Next]")[4]
    assert info["suffix"].startswith("Results from 11 of") and "[Previous]" in info["suffix"]
    assert act(env, "click[previous]", "click[back to search]")[4]["suffix"].startswith("Search")
    assert act(env, "click[buy now]")[4]["error"] == "invalid_action"
    assert "0 products" in act(env, "search[zzz qqq]")[0]


def test_errors_are_tolerated_up_to_the_limit() -> None:
    env = shop(error_tolerance=3)
    _, reward, terminated, _, info = env.step("hello")
    assert (reward, terminated, info["error"]) == (-0.1, False, "invalid_format")
    assert not act(env, "click[nothing]")[2]
    _, _, terminated, _, info = act(env, "dance[now]")
    assert terminated and info["end"] == "too_many_errors" and info["success"] is False


def test_the_renderings() -> None:
    for rendering, mark in (("html", "<h1>"), ("text_rich", "[button] "), ("text", "[Back")):
        env = shop(rendering=rendering)
        assert mark in act(env, "search[lamp]")[4]["suffix"]


def test_a_catalogue_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "shop.jsonl"
    product = {"name": "blue <kettle>", "category": "kettle", "price": 9.5, "attributes": ["blue"]}
    path.write_text("".join(json.dumps({"id": f"K{i}", **product}) + "\n" for i in range(4)))
    env = shop(dataset=str(path), rendering="html")
    assert "sample" not in env.reset(seed=0)[1]
    assert "blue &lt;kettle&gt;" in act(env, "search[kettle]")[4]["suffix"]
    assert pickle.loads(pickle.dumps(env)).step("\\boxed{click[K1]}")[4]["suffix"]
    assert act(env, "click[K1]", "click[buy now]")[1] == 1.0
    path.write_text('{"id": 1}\n')
    with pytest.raises(DataError):
        gem_core.make("webshop:train-text", dataset=str(tmp_path / "none.jsonl"))


GOOD = {"id": "K", "name": "kettle", "category": "kettle", "price": 9.5, "attributes": ["blue"]}


@pytest.mark.parametrize(
    "wrong",
    [
        {"price": "cheap"},
        {"price": float("nan")},
        {"price": -1},
        {"price": None},
        {"attributes": "blue"},
        {"attributes": 7},
        {"options": ["red"]},
        {"options": {"color": "red"}},
        {"options": {"color": ["Buy  now"]}},
        {"options": {"color": [""]}},
        {"id": "k7"},
    ],
)
def test_a_wrong_product_is_named(tmp_path: Path, wrong: dict[str, object]) -> None:
    rows = [{**GOOD, "id": f"K{i}"} for i in range(8)]
    rows[3].update(wrong)
    path = tmp_path / "shop.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match="4"):
        gem_core.make("webshop:train-text", dataset=str(path))


def test_products_with_few_fields(tmp_path: Path) -> None:
    product = {
        **{k: v for k, v in GOOD.items() if k != "id"},
        "attributes": None,
        "options": {"color": None, "size": [" 1  l ", "1 L", "2 l"]},
        "description": None,
    }
    path = tmp_path / "shop.jsonl"
    path.write_text("".join(json.dumps({"id": f"K {i}", **product}) + "\n" for i in range(4)))
    env = shop(dataset=str(path))
    obs = env.reset(seed=0)[0]
    assert "Request: kettle; options: size " in obs and "attributes" not in obs
    size = next(iter(env._picks.values()))
    act(env, "search[kettle]", "click[k  1]", f"click[{size}]")
    assert act(env, "click[buy now]")[1] == 1.0


@pytest.mark.parametrize(
    "action",
    ["search[]", "search[" + "tea " * 50_000 + "]", "search[\ud800]", "click[\x00]", "click[]]"],
)
def test_odd_words_are_searched_or_refused(action: str) -> None:
    env = shop()
    obs, reward, over, _, info = act(env, action)
    assert len(obs) < 300 and reward == 0 and not over
    assert ("error" in info) == action.startswith("click")


def test_unknown_parameters_are_named() -> None:
    with pytest.raises(UnknownNameError, match="'html'"):
        gem_core.make("webshop:train-text", rendering="htm")
    with pytest.raises(UnknownNameError, match="train"):
        gem_core.make("webshop:train-text", split="trian")


@pytest.mark.parametrize(("other", "divided"), [("train-html", True), ("test-text", False)])
def test_a_run_divides_goals_that_training_and_evaluation_share(other: str, divided: bool) -> None:
    tables = ["env=[{id='webshop:train-text'}]", f"eval.env=[{{id='webshop:{other}'}}]"]
    recipe = load_recipe("guess-the-number-easy", "tiny", tables)
    parts = [
        config.kwargs.get("part")
        for split in ("train", "eval")
        for config in split_envs(recipe, split)  # type: ignore[arg-type]
    ]
    assert parts == (["train", "eval"] if divided else [None, None])


def test_goals_of_the_evaluation_are_not_in_training() -> None:
    def count(kwargs: str) -> dict[str, int]:
        table = f"env=[{{id='webshop:train-text', kwargs={{{kwargs}}}}}]"
        counts = task_overlap(load_recipe("guess-the-number-easy", "tiny", [table]))
        assert counts is not None
        return counts

    divided = count("dataset='sample'")
    assert divided["distinct"] >= 1 and divided["seen_in_training"] == 0
    whole = count("dataset='sample', part='all'")
    assert whole["seen_in_training"] > 0.9 * whole["distinct"] > divided["distinct"]
