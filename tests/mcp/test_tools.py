"""Tools of MCP servers in an environment: shared sessions, state, failures as observations."""

from __future__ import annotations

import json
import pickle
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

import gem_core
from gem_core.errors import UnknownNameError
from gem_core.tools import ToolEnv, list_tools, make_tool
from gem_core.tools.mcp import McpTool, mcp_tools

BAD = (sys.executable, str(Path(__file__).parent / "bad_server.py"))
COUNT = "SELECT count(*) FROM things"


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def wrapped(tools: list[McpTool]) -> ToolEnv:
    return ToolEnv(gem_core.make("game:GuessTheNumber-v0-easy"), tools)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "things.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE things (name TEXT)")
    connection.close()
    return path


@pytest.fixture
def tools(database: Path) -> list[McpTool]:
    command = (sys.executable, "-m", "gem_core.tools.mcp.database_server", str(database))
    return mcp_tools(command=command, stateful=True)


def test_the_tools_of_a_server_are_tools_that_share_a_session(tools: list[McpTool]) -> None:
    assert [tool.name for tool in tools] == ["list_tables", "describe", "query", "execute"]
    env = wrapped(tools)
    obs, _ = env.reset(seed=0)
    assert "describe: Return the columns of a table and their types." in obs
    obs, _, terminated, _, info = env.step(call("execute", sql="INSERT INTO things VALUES ('a')"))
    assert "1 row changed" in obs and info["tool"]["ok"] and not terminated
    assert "[1]" in env.step(call("query", sql=COUNT))[0]
    sessions = env._sessions
    assert sessions is not None and len({id(session) for session in sessions.values()}) == 1
    assert pickle.loads(pickle.dumps(tools[0])).schema == tools[0].schema
    env.close()


def test_what_fails_is_an_observation(tools: list[McpTool]) -> None:
    env = wrapped(tools)
    env.reset(seed=0)
    for action in (call("query", sql="SELECT nope"), call("query"), call("query", sql=1)):
        obs, _, terminated, _, info = env.step(action)
        assert not info["tool"]["ok"] and "fail" in obs + "failed" and not terminated
    assert info["tool_failures"] == 3
    env.close()


def test_a_server_that_dies_or_hangs_does_not_end_the_episode() -> None:
    env = wrapped(mcp_tools(command=BAD, seconds=0.3))
    env.reset(seed=0)
    errors = [env.step(call(name))[4]["tool"]["error"] for name in ("die", "hang", "echo")]
    assert errors == ["server_gone", "timeout", None]
    env.close()


def test_state_is_the_calls_which_are_repeated(tools: list[McpTool], database: Path) -> None:
    env = wrapped(tools)
    env.reset(seed=0)
    env.step(call("execute", sql="INSERT INTO things VALUES ('a')"))
    state = json.loads(json.dumps(env.get_state()))
    env.close()
    other = wrapped(tools)
    other.set_state(state)
    # The file itself stays; the repeated call adds the second row.
    assert "[2]" in other.step(call("query", sql=COUNT))[0]
    other.close()


def test_names_that_do_not_exist_are_refused() -> None:
    assert "mcp" in list_tools()
    assert make_tool("mcp", command=BAD, tool="echo").name == "echo"
    with pytest.raises(UnknownNameError, match="Did you mean 'echo'"):
        McpTool(command=BAD, tool="ecko")
