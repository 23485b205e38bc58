"""Tools in a recipe: checked at load, in every environment of a run, recorded, counted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gem_core.envs.players import get_player, play_episode
from gem_core.episodes.context import Context, get_template
from gem_core.episodes.data import Completion, FinishReason
from gem_core.episodes.machine import EpisodeMachine
from gem_core.episodes.metrics import episode_metrics
from gem_core.errors import DataError, RecipeError, UnknownNameError
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.environments.data import make_for_run
from gem_core.runs.environments.description import describe_environments, in_run
from gem_core.runs.recipe.load import load_recipe, override, recipe_from_dict
from gem_core.runs.recipe.recipe import EnvConfig, Recipe
from gem_core.runs.splits import split_envs
from gem_core.runs.tasks import MachineFactory
from gem_core.tools import ToolEnv
from gem_core.training.warm_start.episodes import sample_actions

SEARCH = {
    "id": "qa:Auction",
    "kwargs": {"answer_format": "boxed"},
    "tools": [{"name": "search", "topk": 1}],
}
PYTHON = {"id": "math:Remainders", "tools": [{"name": "python", "seconds": 2.0}]}


def recipe_of(*tables: dict[str, Any], **more: Any) -> Recipe:
    return recipe_from_dict({"name": "r", "env": list(tables), **more})


def rows_of(*tables: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in describe_environments(recipe_of(*tables)) if "train" in row["used_in"]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tools": ["pyhton"]}, r"env\.0\.tools\.0: Unknown tool 'pyhton'\. Did you mean 'python'"),
        ({"tools": [{"name": "python", "second": 2}]}, r"tools\.0: .*'second'\. Did you mean 'sec"),
        ({"tools": [{"name": "python", "seconds": "2"}]}, r"tools\.0\.seconds: must be a number"),
        ({"tools": [{"seconds": 2}]}, r"env\.0\.tools\.0: a tool needs a name"),
        ({"tools": ["search", {"name": "search"}]}, r"env\.0\.tools\.1: 'search' is there twice"),
        ({"tools": [3]}, r"env\.0\.tools"),
        ({"tools": ["search"], "tool_use": {"call": 2}}, r"'env\.0\.tool_use\.call'\. Did you mea"),
        ({"tools": ["search"], "tool_use": {"calls": -1}}, r"env\.0\.tool_use\.calls: must be at"),
        ({"tools": None, "tool_use": {"calls": 2}}, r"env\.0\.tool_use\.calls = 2 .* tools in"),
    ],
)  # fmt: skip
def test_wrong_tools_are_refused_at_load(change: dict[str, Any], message: str) -> None:
    with pytest.raises((RecipeError, UnknownNameError), match=message):
        recipe_of({**SEARCH, **change})
    with pytest.raises((RecipeError, UnknownNameError), match=message.replace("env", "eval.env")):
        recipe_of({"id": "qa:Auction"}, eval={"env": [{**SEARCH, **change}]})


def test_values_that_a_tool_refuses_are_named() -> None:
    table = {**SEARCH, "tools": [{"name": "search", "topk": 0}]}
    with pytest.raises(RecipeError, match=r"env\.0\.tools: search: topk and seconds must be pos"):
        rows_of(table)
    table["tools"] = [{"name": "search", "corpus": "almanach"}]
    with pytest.raises(UnknownNameError, match="Did you mean 'almanac'"):
        rows_of(table)


def test_a_recipe_without_tools_is_written_as_before() -> None:
    plain = recipe_of({"id": "qa:Auction"}).to_dict()
    assert set(plain["env"][0]) == {"id", "kwargs", "weight", "max_turns"}
    without = override(load_recipe("qa-search", "tiny"), ["env.0.tools=[]"])
    assert not isinstance(make_for_run(without.env[0], "env.0"), ToolEnv)
    assert recipe_from_dict(without.to_dict()) == without
    with_tools = recipe_of(SEARCH, eval={"env": [SEARCH]})
    assert recipe_from_dict(json.loads(json.dumps(with_tools.to_dict()))) == with_tools
    assert with_tools.to_dict()["eval"]["env"][0]["tools"] == SEARCH["tools"]


def test_every_environment_of_a_run_has_the_tools() -> None:
    use = {"calls": 3, "call_reward": 0.5, "failed_call_reward": -0.5, "instructions": False}
    recipe = recipe_of({**SEARCH, "tool_use": use}, eval={"env": [PYTHON]})
    factory = MachineFactory(recipe)
    for machine, name, calls in (
        (factory.train(0), "search", 3),
        (factory.evaluation(0), "python", 8),
    ):
        assert isinstance(machine.env, ToolEnv)
        assert list(machine.env.tools) == [name] and machine.env.budget.calls == calls
        machine.start()
        machine.abort()
    env = make_for_run(recipe.env[0], "env.0")
    obs, _ = env.reset(seed=0)
    assert "You may use tools" not in obs
    assert env.step("<search>lot 1049</search>")[1] == 0.5
    assert env.step("<tool_call>x</tool_call>")[1] == -0.5


class Words:
    """A tokenizer with one token for each word."""

    stop_ids = frozenset({0})

    def encode(self, text: str) -> list[int]:
        return [1] * len(text.split())

    def decode(self, token_ids: Sequence[int]) -> str:
        return "word " * len(token_ids)


@pytest.mark.parametrize(("most", "cut"), [(4, True), (11, False)])
def test_results_are_counted_in_tokens_of_the_model(most: int, cut: bool) -> None:
    table = {**SEARCH, "tool_use": {"output_tokens": most}}
    factory = MachineFactory(recipe_of(table))
    factory.tokenizer = Words()
    env = factory.train(0).env
    env.reset(seed=0)
    obs, _, _, _, info = env.step("<search>lot 1049</search>")
    assert info["tool"]["truncated"] is cut and ("left out" in obs) is cut


def test_a_run_records_its_tools() -> None:
    (plain,) = rows_of({"id": "qa:Auction", "kwargs": {"answer_format": "boxed"}})
    assert "tools" not in plain and "tools_key" not in plain
    search, python = rows_of(SEARCH, PYTHON)
    (tool,) = search["tools"]
    assert tool["name"] == "search" and tool["searches"] == "corpus"
    assert tool["revision"].startswith("sha256-")
    assert python["tools"][0]["level"] in ("strict", "confined", "limited")
    digests = {plain["fingerprint"], search["fingerprint"]}
    for change in (
        {"tools": ["search"]},
        {"tools": ["search", "python"]},
        {"tool_use": {"calls": 1}},
    ):
        digests.add(rows_of({**SEARCH, **change})[0]["fingerprint"])
    assert len(digests) == 5
    assert rows_of({**SEARCH, "tools": [{"name": "search"}]})[0]["fingerprint"] in digests
    assert len(digests) == 5


def test_training_and_evaluation_with_other_tools_are_two_rows() -> None:
    other = {**SEARCH, "tools": [*SEARCH["tools"], "python"]}
    rows = describe_environments(recipe_of(SEARCH, eval={"env": [other]}))
    assert [row["used_in"] for row in rows] == [["train"], ["eval"]]
    assert [len(row["tools"]) for row in rows] == [1, 2]


def test_a_process_with_another_level_or_corpus_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"title": "Osk", "text": "A river."}')
    searched = {**SEARCH, "tools": [{"name": "search", "corpus": str(corpus)}]}
    recipe = recipe_of(PYTHON, searched)
    monkeypatch.setenv("GEM_CORE_SANDBOX", "guarded")
    run = RunDir.create(tmp_path / "run", recipe, "trl")
    python, search = split_envs(recipe, "train")
    with in_run(run):
        make_for_run(python, "env.0").close()
        make_for_run(search, "env.1").close()
    assert run.info["environments"][0]["tools"][0]["level"] == "guarded"
    monkeypatch.delenv("GEM_CORE_SANDBOX")
    corpus.write_text('{"title": "Osk", "text": "A brook."}')
    with in_run(run, run.info["environments"]):
        with pytest.raises(DataError, match=r"'level': 'guarded'.*GEM_CORE_SANDBOX names"):
            make_for_run(python, "env.0")
        with pytest.raises(DataError, match=r"recorded with the tool .*'sha256-"):
            make_for_run(search, "env.1")


def played(actions: list[str], config: EnvConfig) -> Any:
    machine = EpisodeMachine(make_for_run(config, "env.0"), Context(get_template("no")), seed=0)
    machine.start()
    for action in actions:
        machine.feed(Completion([], text=action, finish_reason=FinishReason.STOP))
    return machine.episode


def test_calls_are_counted_in_the_metrics() -> None:
    config = recipe_of(SEARCH).env[0]
    call = "<search>lot 1049</search>"
    episodes = [
        played([call, call, "\\boxed{1}"], config),
        played(["<tool_call>x</tool_call>", "\\boxed{1}"], config),
        played(["\\boxed{1}"], config),
    ]
    metrics = episode_metrics(episodes)
    assert metrics["tool/calls"] == 1.0 and metrics["tool/used"] == pytest.approx(2 / 3)
    assert metrics["tool/failed"] == pytest.approx(1 / 3) and metrics["time/tool"] >= 0
    plain = played(["\\boxed{1}"], recipe_of({"id": "qa:Auction"}).env[0])
    assert not any(name.startswith("tool") for name in episode_metrics([plain]))


@pytest.mark.parametrize("name", ["math-python", "qa-search"])
def test_the_experts_of_the_tool_recipes_use_the_tool(name: str) -> None:
    recipe = load_recipe(name, "tiny")
    config = recipe.env[0]
    env = make_for_run(config, "env.0")
    for seed in range(8):
        assert play_episode(env, get_player("expert", config.id, seed, env=env), seed=seed) == (
            1.0,
            2,
            True,
        )
    env.close()
    actions = sample_actions(config, 2).splitlines()
    tag = next(iter(env.tools))  # type: ignore[attr-defined]
    assert [action.startswith(f"<{tag}>") for action in actions] == [True, False] * 2
