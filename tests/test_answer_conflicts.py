"""A template that asks for what the environment does not read: a warning, in no recipe of ours."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from gem_core.env.registration import make_from_data
from gem_core.runs.environments.description import describe_environments
from gem_core.runs.recipe.files import shipped
from gem_core.runs.recipe.load import load_recipe, recipe_from_dict
from gem_core.runs.recipe.templates import answer_conflict

QUESTIONS = {"id": "qa:Auction", "kwargs": {"dataset": "sample"}}
SEARCH = {**QUESTIONS, "tools": [{"name": "search", "topk": 1}]}


def told(env: dict[str, Any], context: dict[str, Any]) -> set[str]:
    """Return the warnings of a run's start, with which every trainer begins, each once.

    Where the evaluation plays another part of the data, its environment is made, too.
    """
    recipe = recipe_from_dict({"name": "x", "env": [env], "context": context})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        describe_environments(recipe)
    return {str(w.message) for w in caught if "contradicts" in str(w.message)}


@pytest.mark.parametrize("template", ["qwen3_game", "qwen3_general", "code"])
def test_a_run_warns_of_another_format(template: str) -> None:
    (line,) = told(QUESTIONS, {"template": template})
    assert line.startswith("env.0: ") and "reads 'tag'" in line and template in line


@pytest.mark.parametrize(
    ("env", "context"),
    [
        (QUESTIONS, {"template": "no"}),
        ({**QUESTIONS, "kwargs": {"answer_format": "boxed"}}, {"template": "qwen3_game"}),
        ({**SEARCH, "tool_use": {"answer_format": "boxed"}}, {"template": "qwen3_general"}),
        ({"id": "code:Formulas"}, {"template": "code"}),
        (
            QUESTIONS,
            {
                "template": "custom",
                "custom": {
                    "first": "{observation} <answer>",
                    "next": "{observation}",
                    "close": "",
                },
            },
        ),
    ],
)
def test_it_does_not_where_they_agree(env: dict[str, Any], context: dict[str, Any]) -> None:
    assert told(env, context) == set()


@pytest.mark.parametrize("system", ["Answer in \\boxed{}.", None])
def test_a_system_message_may_ask_for_a_format(system: str | None) -> None:
    lines = told(QUESTIONS, {"template": "chat", **({"system": system} if system else {})})
    assert len(lines) == (system is not None)


@pytest.mark.parametrize("baseline", shipped("baselines"))
@pytest.mark.filterwarnings("ignore::gem_core.envs._data_source.SampleDataWarning")
@pytest.mark.filterwarnings("ignore::UserWarning:reasoning_gym")
def test_no_recipe_of_ours_contradicts_itself(baseline: str) -> None:
    for profile in (None, *shipped("profiles")):
        recipe = load_recipe(baseline, profile)
        for config in (*recipe.env, *recipe.eval.env):
            env = make_from_data(config.id, config.kwargs)
            assert answer_conflict(recipe.context, config, env) is None, profile
            env.close()
