"""`gem_core.tools`: formats of calls, the wrapper's budgets, rewards and state, the Python tool."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import gem_core
from gem_core.env.interface import Env
from gem_core.errors import (
    EpisodeStateError,
    KindError,
    RegistrationError,
    StateError,
    UnknownNameError,
)
from gem_core.tools import Budget, Call, Tool, ToolEnv, ToolResult, ToolRewards, make_tool, registry
from gem_core.tools.base import wrong_arguments
from gem_core.tools.python import PythonTool

ROOT = Path(__file__).resolve().parents[2]


class Unshown(BaseException):
    def __str__(self) -> str:
        raise SystemExit(0)


class Search(Tool):
    """A tool whose result and faults a test chooses."""

    name = "search"
    description = "Finds text."
    schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {"query": {"type": "string"}, "most": {"type": "integer"}},
        "required": ["query"],
    }
    tag = "search"
    result_tag = "information"
    slow = False

    def run(self, call: Call, session: Any, seconds: float) -> ToolResult:
        query = call.arguments["query"].strip()
        if query == "fail":
            return ToolResult("not found", "no_result", 0.25)
        if query == "raise":
            raise RuntimeError("the index is broken")
        if query == "quit":
            raise SystemExit(3)
        if query == "unshown":
            raise Unshown
        if query == "long":
            return ToolResult("begin" + "x" * 10_000 + "end")
        session.append(query)
        return ToolResult(f"about {query}, {seconds:.0f} s", seconds=0.5, fields={"hits": 1})

    def start(self) -> list[str]:
        return []

    def save(self, session: list[str]) -> list[str]:
        return list(session)

    def load(self, state: list[str]) -> list[str]:
        return list(state)


class Question(Env):
    """Asks one question; the answer is passed in a box."""

    answer_format = "boxed"
    _state_fields = ("asked",)

    def _reset(self, options: dict[str, Any] | None) -> tuple[str, dict[str, Any]]:
        self.asked = self.rng.randrange(100)
        return f"Say {self.asked}.", {}

    def _step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        right = f"\\boxed{{{self.asked}}}" in action
        return "done", float(right), True, False, {"success": right}

    def random_action(self, rng: random.Random) -> str:
        return f"\\boxed{{{rng.randrange(100)}}}"


def env_with(**options: Any) -> ToolEnv:
    env = ToolEnv(Question(), options.pop("tools", None) or [Search(), PythonTool()], **options)
    env.reset(seed=0)
    return env


@pytest.mark.parametrize(
    ("action", "tool", "arguments", "shown"),
    [
        ("so <search>moon</search> and", "search", {"query": "moon"}, "<information>\nabout moon"),
        ("<search>a <search>moon</search>", "search", {"query": "moon"}, "<information>\nabout"),
        ("<search></search><search>b</search>", "search", {"query": "b"}, "\nabout b"),
        ("<python>\nprint(1)\n</python>", "python", {"code": "print(1)"}, "<output>\n1\n</output>"),
        ("```python\nprint(1)\n```", "python", {"code": "print(1)\n"}, "```output\n1\n```"),
        ("a\n```py\nprint('```')\n```\nb", "python", {"code": "print('```')\n"}, "````output"),
        (
            '<tool_call>\n{"name": "search", "arguments": {"query": "moon"}}\n</tool_call>',
            "search",
            {"query": "moon"},
            "<tool_response>\nabout moon",
        ),
        (
            '<tool_call>{"name": "python", "arguments": "{\\"code\\": \\"print(2)\\"}"}'
            "</tool_call>",
            "python",
            {"code": "print(2)"},
            "<tool_response>\n2\n</tool_response>",
        ),
    ],
)  # fmt: skip
def test_calls_are_understood_in_every_format(
    action: str, tool: str, arguments: dict[str, Any], shown: str
) -> None:
    env = env_with()
    call = env.tools[tool].parse(action)
    assert call is not None and call.arguments == arguments and not call.problem
    obs, reward, terminated, truncated, info = env.step(action)
    assert shown in obs and (reward, terminated, truncated) == (0.0, False, False)
    assert info["tool"]["name"] == tool and info["tool"]["ok"] and info["tool_calls"] == 1


@pytest.mark.parametrize(
    "action",
    ["plain", "<search>unfinished", "<search> </search>", "```\nprint(1)\n```", "```python\nx", ""],
)
def test_what_is_not_a_call_is_passed_on(action: str) -> None:
    obs, _, terminated, _, info = env_with().step(action)
    assert obs == "done" and terminated
    assert info == {"success": False, "tool_calls": 0, "tool_failures": 0, "tool_seconds": 0.0}


@pytest.mark.parametrize(
    ("action", "error", "text"),
    [
        ("<search>fail</search>", "no_result", "not found"),
        ("<search>raise</search>", "tool_exception", "RuntimeError: the index is broken"),
        ("<search>quit</search>", "tool_exception", "SystemExit: 3"),
        ("<search>unshown</search>", "tool_exception", "(its message cannot be shown: SystemExit)"),
        ("<python>1 / 0</python>", "error", "ZeroDivisionError: division by zero"),
        ("<python>import os; os.fork()</python>", "error", "not permitted"),
        ("<tool_call>not json</tool_call>", "invalid_call", "must be JSON"),
        ('<tool_call>{"name": "find"}</tool_call>', "invalid_call", "the tools are search, python"),
        ('<tool_call>{"name": "search"}</tool_call>', "invalid_call", "'query' is missing"),
        (
            '<tool_call>{"name": "search", "arguments": {"query": 1}}</tool_call>',
            "invalid_call",
            "must be of type string",
        ),
        (
            '<tool_call>{"name": "search", "arguments": [1]}</tool_call>',
            "invalid_call",
            "must be a JSON object",
        ),
    ],
)  # fmt: skip
def test_a_call_that_fails_is_an_observation(action: str, error: str, text: str) -> None:
    env = env_with(rewards=ToolRewards(call=0.5, failed_call=-0.25))
    obs, reward, terminated, _, info = env.step(action)
    assert text in obs and info["tool"]["error"] == error and not info["tool"]["ok"]
    assert (reward, terminated, info["tool_failures"]) == (-0.25, False, 1)
    assert env.step("<search>moon</search>")[1] == 0.5
    assert env.step(f"\\boxed{{{env.unwrapped.asked}}}")[1] == 1.0


def test_a_program_that_hangs_is_an_observation_and_the_episode_goes_on() -> None:
    for keep in (False, True):
        env = env_with(tools=[PythonTool(seconds=0.3, keep=keep)])
        obs, _, terminated, _, info = env.step("<python>while True: pass</python>")
        assert "reached the wall deadline" in obs and not terminated
        assert info["tool"]["error"] == "timeout" and info["tool"]["level"]
        assert ("variables are lost" in obs) is keep
        assert "<output>\n1\n" in env.step("<python>print(1)</python>")[0]
        env.close()


def test_a_failed_call_ends_the_episode_where_that_is_configured() -> None:
    env = env_with(end_on_failure=True)
    assert not env.step("<search>moon</search>")[2]
    _, _, terminated, truncated, info = env.step("<search>fail</search>")
    assert terminated and not truncated
    assert info["success"] is False and info["end"] == "tool_failure"
    for action in ("<search>moon</search>", "\\boxed{1}"):
        with pytest.raises(EpisodeStateError, match="call reset"):
            env.step(action)


def test_the_budget_of_calls() -> None:
    env = env_with(budget=Budget(calls=2))
    assert "No tool call is left" not in env.step("<search>a</search>")[0]
    assert "No tool call is left" in env.step("<search>b</search>")[0]
    obs, _, terminated, _, info = env.step("<search>c</search> \\boxed{1}")
    assert obs == "done" and terminated and info["tool_calls"] == 2


def test_several_calls_in_one_action() -> None:
    action = "<search>a</search> <python>print(7)</python> <search>b</search>"
    obs = env_with().step(action)[0]
    assert "about a" in obs and "7" not in obs
    obs, _, _, _, info = env_with(budget=Budget(per_turn=2)).step(action)
    assert obs.index("about a") < obs.index("7") and "about b" not in obs
    assert [one["name"] for one in info["tools"]] == ["search", "python"]
    assert info["tool_calls"] == 2


def test_the_budget_of_seconds() -> None:
    env = env_with(budget=Budget(seconds=1.0))
    assert "about a, 1 s" in env.step("<search>a</search>")[0]
    obs, _, _, _, info = env.step("<search>b</search>")
    assert "No tool call is left" in obs and info["tool_seconds"] == 1.0
    assert env.step("<search>c</search>")[2]


def test_long_results_lose_their_middle() -> None:
    obs, _, _, _, info = env_with(budget=Budget(output_tokens=50)).step("<search>long</search>")
    assert len(obs) < 300 and "beginxxx" in obs and "xxxend" in obs and "left out" in obs
    assert info["tool"]["truncated"]
    words = env_with(budget=Budget(output_tokens=9), count_tokens=lambda text: len(text.split()))
    assert words.step("<search>long</search>")[0].count("x") >= 9_000


def test_the_first_observation_describes_the_tools() -> None:
    env = ToolEnv(Question(), [Search(), PythonTool(formats=("fence",))], budget=Budget(calls=3))
    obs, info = env.reset(seed=0)
    assert obs.startswith("Say ") and "up to 3 times" in obs
    assert "<search>query</search>" in obs and "```python\ncode\n```" in obs
    assert info == {"tool_calls": 0, "tool_failures": 0, "tool_seconds": 0.0}
    plain = ToolEnv(Question(), [Search()], instructions=False)
    assert "tools" not in plain.reset(seed=0)[0]
    assert plain.functions[0]["function"]["parameters"]["required"] == ["query"]
    assert env.stops == ["</search>", "</tool_call>", "\n```\n"]


def test_the_agents_answer_reaches_the_environment_in_its_own_format() -> None:
    env = env_with(answer_format="tag")
    assert env.step(f"It is <answer> {env.unwrapped.asked} </answer>")[1] == 1.0
    assert env_with(answer_format="tag").step("no answer")[0] == "done"


def test_the_state_goes_through_json_and_continues_as_before() -> None:
    program = "<python>x = 5\nprint('set')</python>"
    env = env_with(tools=[Search(), PythonTool(keep=True)])
    env.step(program)
    env.step("<search>a</search>")
    state = json.loads(json.dumps(env.get_state()))
    copies = [env_with(tools=[Search(), PythonTool(keep=True)]) for _ in range(2)]
    for copy in copies:
        copy.set_state(state)
        copy.step("<python>x += 1</python>")
        obs, _, _, _, info = copy.step("<python>print(x)</python>")
        assert "<output>\n6\n" in obs and info["tool_calls"] == 4
        assert copy.get_state()["tools"]["search"] == ["a"]
    assert "<output>\n5\n" in env.step("<python>print(x)</python>")[0]
    env.reset(seed=1)
    assert "NameError" in env.step("<python>print(x)</python>")[0]
    fresh = ToolEnv(Question(), [Search()])
    fresh.set_state(json.loads(json.dumps(ToolEnv(Question(), [Search()]).get_state())))
    with pytest.raises(EpisodeStateError, match="before reset"):
        fresh.step("<search>a</search>")
    for one in (env, *copies):
        one.close()


def test_a_session_keeps_variables_only_where_that_is_configured() -> None:
    for keep, shown in ((True, "<output>\n1\n"), (False, "NameError")):
        env = env_with(tools=[PythonTool(keep=keep)])
        env.step("<python>x = 1</python>")
        assert shown in env.step("<python>print(x)</python>")[0]
        env.close()


def test_the_wrapper_passes_the_checks_of_environments() -> None:
    gem_core.check_env(lambda: ToolEnv(Question(), [Search()]), skip=("process",))
    math = ToolEnv(gem_core.make("game:GuessTheNumber-v0-easy"), [PythonTool()])
    assert math.slow
    assert not ToolEnv(Question(), [Search()]).slow


def test_calls_that_hang_or_crash_end_no_episode() -> None:
    path = ROOT / "benchmarks" / "sandbox" / "episodes.py"
    spec = importlib.util.spec_from_file_location("sandbox_episodes", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    summary = module.summary(*module.play(12, 6, faulty=True))
    assert summary["episodes"] == {"terminated": 12}
    assert summary["calls"] == 120 and summary["errors"]["killed"] == 6
    # On a busy machine a healthy call may need longer than the deadline too.
    assert summary["errors"]["timeout"] >= 6 and summary["healthy_p50_ms"] < 1000


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one tool"):
        ToolEnv(Question(), [])
    with pytest.raises(ValueError, match="name of its own"):
        ToolEnv(Question(), [Search(), Search()])
    with pytest.raises(ValueError, match="cannot be negative"):
        ToolEnv(Question(), [Search()], budget=Budget(calls=-1))
    with pytest.raises(UnknownNameError, match="fence"):
        Search(formats=("fence",))


def test_booleans_are_no_numbers() -> None:
    schema = {"properties": {"n": {"type": "integer"}}}
    assert wrong_arguments(schema, {"n": 1}) == ""
    assert "type integer" in wrong_arguments(schema, {"n": True})
    assert "no argument 'm'" in wrong_arguments(schema, {"m": 1})


class Point:
    """An entry point."""

    def __init__(self, name: str, loaded: Any):
        self.name = name
        self.value = f"package:{name}"
        self._loaded = loaded

    def load(self) -> Any:
        if isinstance(self._loaded, Exception):
            raise self._loaded
        return self._loaded


def test_tools_of_other_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [Point("finder", Search), Point("bad", dict), Point("gone", ImportError("no module"))]
    monkeypatch.setattr(registry, "list_entry_points", lambda group: points)
    assert {"bad", "finder", "gone", "python", "search"} <= set(registry.list_tools())
    assert isinstance(make_tool("finder", formats=("tag",)), Search)
    assert isinstance(make_tool("python", keep=True), PythonTool)
    with pytest.raises(RegistrationError, match="not a Tool"):
        make_tool("bad")
    with pytest.raises(RegistrationError, match="cannot be imported: ImportError: no module"):
        make_tool("gone")
    with pytest.raises(UnknownNameError, match="Did you mean 'search'"):
        make_tool("serach")


def test_a_state_of_other_tools_is_refused_and_changes_nothing() -> None:
    env = env_with(tools=[Search(), PythonTool(keep=True)])
    env.step("<python>x = 5</python>")
    state = json.loads(json.dumps(env.get_state()))
    saved = state["tools"]
    for tools in (None, {}, [], {**saved, "more": 1}, {**saved, "python": [1]}):
        with pytest.raises(StateError):
            env.set_state({**state, "tools": tools})
    assert env.get_state() == state
    assert "5" in env.step("<python>print(x)</python>")[0]
    env.close()


def test_a_run_that_returns_no_result_is_an_error_of_its_author():
    class Text(Search):
        def run(self, call: Call, session: Any, seconds: float) -> Any:
            return "about it"

    env = ToolEnv(gem_core.make("game:GuessTheNumber-v0-easy"), [Text()])
    env.reset(seed=0)
    with pytest.raises(KindError, match=r"'search' returned 'about it': run\(\) returns a ToolRes"):
        env.step("<search>it</search>")


@pytest.mark.parametrize("name", ["name", "description", "schema", "tag"])
def test_a_tool_without_one_of_its_attributes_is_named(name):
    given = {"name": "a", "description": "b", "schema": {"type": "object"}, "tag": "a"}
    kind = type("Half", (Tool,), {"run": Search.run, **given})
    env = gem_core.make("game:GuessTheNumber-v0-easy")
    ToolEnv(env, [kind()])
    delattr(kind, name)
    with pytest.raises(KindError, match=f"Half has no {name}: "):
        ToolEnv(env, [kind()])
