"""The two parts of a data set: no question is in both, and a large table is not read as a whole."""

from __future__ import annotations

import json
import pickle
import random
from collections import Counter
from pathlib import Path

import pytest

import gem_core
from gem_core.env.interface import Env
from gem_core.envs.evaluation import eval_items
from gem_core.envs.parts import SMALL, Division
from gem_core.envs.single_turn import OptionError
from gem_core.errors import DataError, UnknownNameError

FAMILIES = (
    "math:GSM8K",
    "qa:HotpotQA",
    "code:PrimeIntellect15k",
    "logic:RuleTaker-d2",
    "eval:MATH500",
    "eval:CodeContest",
)


def sample(env_id: str, **kwargs: object) -> Env:
    return gem_core.make(env_id, dataset="sample", **kwargs)


def table(folder: Path, questions: list[str]) -> str:
    """A file of questions."""
    path = folder / "rows.jsonl"
    rows = [{"problem": question, "answer": "1"} for question in questions]
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def questions(env: Env) -> list[str]:
    """All questions that an environment plays, in their order."""
    shown = []
    for options in eval_items(env):
        env.reset(options=options)
        shown.append(env.unwrapped.question)
    return shown


@pytest.mark.parametrize("env_id", FAMILIES)
def test_every_item_is_in_exactly_one_part(env_id: str) -> None:
    train, held_out, whole = (sample(env_id, part=part) for part in ("train", "eval", "all"))
    assert not set(questions(train)) & set(questions(held_out))
    assert sorted(questions(train) + questions(held_out)) == sorted(questions(whole))
    distinct = len(set(questions(whole)))
    assert len(set(questions(held_out))) == max(1, round(distinct / 10))


def test_the_share_can_be_chosen() -> None:
    parts = [sample("math:GSM8K", part=part, held_out=0.4) for part in ("train", "eval")]
    assert [len(eval_items(env)) for env in parts] == [36, 24]
    with pytest.raises(ValueError, match="held_out must be between 0 and 1"):
        sample("math:GSM8K", held_out=1.0)
    with pytest.raises(UnknownNameError, match="Did you mean 'train'"):
        sample("math:GSM8K", part="trian")


def test_the_text_decides_whatever_the_row(tmp_path: Path) -> None:
    texts = [f"What is {n} + {n}?" for n in range(40)]
    spelt_otherwise = [f"  what is\t{n} + {n}? " for n in range(40)]
    rows = [*texts, *spelt_otherwise]
    random.Random(0).shuffle(rows)
    path = table(tmp_path, rows)
    parts = {}
    for part in ("train", "eval"):
        env = gem_core.make("math:GSM8K", dataset=path, part=part)
        parts[part] = Counter(" ".join(q.split()).casefold() for q in questions(env))
    assert not parts["train"].keys() & parts["eval"].keys()
    assert set(parts["train"].values()) == set(parts["eval"].values()) == {2}


@pytest.mark.parametrize("texts", [["The same?"], ["The same?"] * 2000])
def test_data_that_cannot_be_divided_are_refused(tmp_path: Path, texts: list[str]) -> None:
    path = table(tmp_path, texts)
    with pytest.raises(DataError, match=r"held.out.*\[\[eval.env\]\].*kwargs.part = 'all'"):
        gem_core.make("math:GSM8K", dataset=path, part="train")
    env = gem_core.make("math:GSM8K", dataset=path, part="all")
    assert env.reset(seed=0)[0].startswith("The same?")


def test_a_large_table_is_read_where_items_are_drawn() -> None:
    read: list[int] = []

    def text_of(index: int) -> str:
        read.append(index)
        return f"question {index}"

    large = Division(0.1, 10**6, text_of)
    rng = random.Random(0)
    drawn = {part: [large.draw(part, rng) for _ in range(500)] for part in ("train", "eval")}
    assert len(read) < 500 * 15
    assert all(large.has(part, index) for part, items in drawn.items() for index in items)
    # About a tenth of any rows is held out, and each item is as likely as any other.
    assert 0.07 < sum(large.has("eval", i) for i in range(5000)) / 5000 < 0.13
    assert 400_000 < sum(drawn["eval"]) / 500 < 600_000


def test_small_tables_end_where_large_ones_begin() -> None:
    for count in (2, SMALL, SMALL + 1):
        parts = Division(0.1, count, "question {}".format)
        sizes = [len(parts.indices(part)) for part in ("train", "eval")]
        assert sum(sizes) == count and min(sizes) >= 1


def test_all_items_of_a_part_are_drawn_and_no_others() -> None:
    for part in ("train", "eval"):
        env = sample("math:GSM8K", part=part)
        drawn = {env.reset(seed=seed)[1]["index"] for seed in range(-300, 300)}
        assert sorted(drawn) == env.unwrapped.item_indices()
    with pytest.raises(OptionError, match=r"Item \d+ is not in the part 'eval'"):
        env.reset(options=eval_items(sample("math:GSM8K", part="train"))[0])


def test_a_pass_by_seeds_visits_every_item_of_the_part_once() -> None:
    env = sample("eval:MATH500", part="train")
    seeds = range(-1, -37, -1)
    played = [env.reset(seed=seed)[1]["index"] for seed in seeds]
    assert played == env.unwrapped.item_indices()
    assert [env.reset()[1]["index"] for _ in range(3)] == played[:3]


def test_without_a_part_the_draws_are_as_before() -> None:
    env = sample("math:GSM8K")
    for seed in range(20):
        assert env.reset(seed=seed)[1]["index"] == int(random.Random(2 * seed).random() * 60)


def test_the_part_is_in_the_fingerprint_and_survives_copies() -> None:
    train, held_out, whole = (
        sample("math:GSM8K", **({"part": part} if part else {})) for part in ("train", "eval", None)
    )
    assert len({env.spec.fingerprint() for env in (train, held_out, whole)}) == 3
    held_out.reset(seed=3)
    copy = pickle.loads(pickle.dumps(held_out))
    other = sample("math:GSM8K", part="eval")
    other.set_state(held_out.get_state())
    following = [env.reset() for env in (held_out, copy, other)]
    assert following[0] == following[1] == following[2]


def test_the_shop_holds_out_products() -> None:
    goals = {}
    for part in ("train", "eval"):
        shop = gem_core.make("webshop:train-text", part=part).unwrapped
        goals[part] = {shop._shop.products[goal].name for goal in shop._goals}
    assert not goals["train"] & goals["eval"] and min(map(len, goals.values())) >= 1
    both = gem_core.make("webshop:train-text", part="all").unwrapped
    assert len(both._goals) == len(gem_core.make("webshop:train-text").unwrapped._goals)
