"""Items: the evaluation episodes, and every item of GEM's evaluation sets once."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from gem_core.env.registration import list_envs
from gem_core.evaluation.contenders import ScriptedPlayer
from gem_core.evaluation.items import all_items
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.tasks import eval_task, train_task

from .common import GAME, HARD, evaluated


def test_items_are_the_evaluation_episodes_of_a_run_and_more_samples_of_them():
    recipe = load_recipe(
        "guess-the-number-easy", "tiny", [f"eval.env=[{{id='{GAME}'}}, {{id='{HARD}'}}]"]
    )
    items = list(all_items([3, 2], 2))
    assert [item.index for item in items] == list(range(10))
    for item in items[:5]:
        task = eval_task(recipe, item.index)
        assert (item.env, item.seed, item.task) == (task.env, task.seed, task.group)
    assert [(i.task, i.env, i.seed) for i in items[5:]] == [
        (i.task, i.env, i.seed) for i in items[:5]
    ]


def test_seeds_of_evaluations_are_never_trained_on():
    seeds = {item.seed for item in all_items([500, 20], 3)}
    recipe = load_recipe("guess-the-number-easy")
    trained = {train_task(recipe, k).seed for k in range(2000)}
    assert max(seeds) < 0 <= min(trained)


def test_an_evaluation_is_repeatable_and_samples_differ(tmp_path):
    first, one = evaluated(tmp_path / "a", (GAME, HARD), samples=4, tasks=6)
    second, two = evaluated(
        tmp_path / "b", (GAME, HARD), ScriptedPlayer("random", 1), samples=4, tasks=6
    )
    assert first["metrics"].keys() == second["metrics"].keys()
    actions = [
        {e.index: [t.action for t in e.turns] for _, e in folder.run.episodes()}
        for folder in (one, two)
    ]
    assert actions[0] == actions[1] and len(actions[0]) == 48
    assert len({str(actions[0][item]) for item in range(0, 48, 12)}) > 1
    for name in ("success/mean", "reward/mean", "pass@4/mean", "pass^2/low"):
        assert first["metrics"][name] == second["metrics"][name]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Local files with the columns of the real data; each question is there once."""
    folder = tmp_path_factory.mktemp("tables")
    rows = {
        "math": [{"problem": f"What is {k} + 1?", "answer": str(k + 1)} for k in range(37)],
        "qa": [{"question": f"Who is number {k}?", "answer": [f"N{k}"]} for k in range(23)],
        "code": [
            {"problem": f"Print {k}.", "tests": {"inputs": [""], "outputs": [f"{k}\n"]}}
            for k in range(5)
        ],
    }
    paths = {}
    for name, table in rows.items():
        paths[name] = folder / f"{name}.jsonl"
        paths[name].write_text("".join(json.dumps(row) + "\n" for row in table))
    return paths


def _table_of(env_id, tables):
    if env_id == "eval:CodeContest":
        return tables["code"]
    mathematics = ("MATH500", "AMC", "OlympiadBench", "Minerva", "AIME24")
    return tables["math" if env_id.partition(":")[2] in mathematics else "qa"]


@pytest.mark.parametrize("concurrency", [1, 7, 500])
def test_every_item_of_the_evaluation_sets_is_asked_once(tmp_path, tables, concurrency):
    ids = [i for i in list_envs("eval:*") if concurrency == 7 or i != "eval:CodeContest"]
    overrides = [
        f"env.{k}.kwargs.dataset={_table_of(env_id, tables)}" for k, env_id in enumerate(ids)
    ]
    result, folder = evaluated(
        tmp_path / "e",
        tuple(ids),
        ScriptedPlayer("random", concurrency),
        tasks=None,
        overrides=overrides,
    )
    asked = Counter()
    for _, episode in folder.run.episodes():
        asked[episode.env_id, episode.turns[0].observation] += 1
    expected = sum(len(_table_of(i, tables).read_text().splitlines()) for i in ids)
    assert len(asked) == expected == result["items"] and set(asked.values()) == {1}
    assert [entry["id"] for entry in result["environments"]] == ids


def test_items_of_a_training_set_are_also_asked_once(tmp_path):
    overrides = ["env.0.kwargs.dataset=sample"]
    _, folder = evaluated(tmp_path / "e", ("math:GSM8K",), tasks=None, overrides=overrides)
    asked = Counter(e.turns[0].observation for _, e in folder.run.episodes())
    assert set(asked.values()) == {1} and len(asked) == len(folder.rows()) > 10
