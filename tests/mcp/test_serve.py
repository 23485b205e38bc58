"""``gem-core serve --mcp``: a client of the official SDK lists, plays and closes environments."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.mcpserver.exceptions import ToolError

import gem_core
from gem_core.cli import main
from gem_core.envs.games.guess_the_number import GuessTheNumber
from gem_core.errors import GemError
from gem_server.mcp_server import make_server
from gem_server.mcp_sessions import EnvSessions, ServeError, ServeLimits

GAME = "game:GuessTheNumber-v0-easy"
COMMAND = ["-m", "gem_core.cli", "serve", "--mcp", "--environments", "game:Guess*", "qa:*"]


def content(result: Any) -> Any:
    assert not result.is_error, result.content
    return json.loads(result.content[0].text)


async def play(session: ClientSession) -> None:
    await session.initialize()
    names = {tool.name for tool in (await session.list_tools()).tools}
    assert names == {"list_environments", "reset", "step", "close"}
    listed = content(await session.call_tool("list_environments", {"pattern": "game:"}))
    assert listed["environments"] == gem_core.list_envs("game:Guess*")
    env = gem_core.make(GAME)
    started = content(await session.call_tool("reset", {"environment": GAME, "seed": 3}))
    assert (started["observation"], started["info"]) == env.reset(seed=3)
    name = started["session"]
    for guess in range(1, 11):
        action = f"\\boxed{{{guess}}}"
        there = content(await session.call_tool("step", {"session": name, "action": action}))
        here = env.step(action)
        assert (there["observation"], there["reward"], there["terminated"]) == here[:3]
        assert there["info"] == here[4]
        if here[2]:
            break
    over = await session.call_tool("step", {"session": name, "action": "x"})
    assert over.is_error and "over" in over.content[0].text
    assert content(await session.call_tool("close", {"session": name})) == {"closed": name}
    for arguments in ({"environment": "math:GSM8K"}, {"environment": GAME, "parameters": {"x": 1}}):
        assert (await session.call_tool("reset", arguments)).is_error
    assert (await session.call_tool("step", {"session": name, "action": "x"})).is_error


async def by_stdio() -> None:
    parameters = StdioServerParameters(command=sys.executable, args=COMMAND)
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        await play(session)


async def by_http(url: str) -> None:
    async with streamable_http_client(url) as (read, write), ClientSession(read, write) as session:
        await play(session)


def test_a_client_of_the_sdk_plays_on_standard_input() -> None:
    asyncio.run(asyncio.wait_for(by_stdio(), 60))


def test_a_client_of_the_sdk_plays_by_http() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, *COMMAND, "--port", str(port)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 30
        while not listening(port) and time.monotonic() < until:
            time.sleep(0.1)
        asyncio.run(asyncio.wait_for(by_http(f"http://127.0.0.1:{port}/mcp"), 60))
    finally:
        process.kill()
        process.wait()


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_sessions_are_limited_and_idle_ones_make_room() -> None:
    sessions = EnvSessions(ServeLimits(sessions=2, idle_s=1.0))
    first = sessions.reset(GAME, 0, None)["session"]
    second = sessions.reset(GAME, 0, None)["session"]
    with pytest.raises(ServeError, match="All 2 sessions are taken"):
        sessions.reset(GAME, 0, None)
    time.sleep(1.1)
    sessions.step(second, "\\boxed{1}")
    sessions.reset(GAME, 0, None)
    with pytest.raises(ServeError, match="no session"):
        sessions.step(first, "\\boxed{1}")
    sessions.step(second, "\\boxed{2}")
    sessions.close_all()


def test_a_failed_reset_takes_no_session() -> None:
    sessions = EnvSessions(ServeLimits(sessions=1, parameters=True))
    for _ in range(3):
        with pytest.raises(GemError):
            sessions.reset(GAME, 0, {"no_such_parameter": 1})
    assert sessions.reset(GAME, 0, {"max_turns": 2})["session"]
    sessions.close_all()


def test_an_environment_that_exits_is_an_error_of_its_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def quit_program(self: Any, action: str) -> None:
        raise SystemExit(3)

    async def run() -> None:
        sessions = EnvSessions()
        server = make_server(sessions)
        started = await server.call_tool("reset", {"environment": GAME, "seed": 3})
        name = content(started)["session"]
        monkeypatch.setattr(GuessTheNumber, "_step", quit_program)
        with pytest.raises(ToolError, match="The environment failed: SystemExit: 3"):
            await server.call_tool("step", {"session": name, "action": "x"})
        sessions.close_all()

    asyncio.run(run())


def test_the_command_names_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--mcp", "--environments", "nope:*"]) == 2
    assert "nope:*" in capsys.readouterr().err


ATTACKS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("multi:Nim-v0-easy", {"game": "subprocess:Popen", "args": ["touch", "marker"]}),
    ("multi:Nim-v0-easy", {"opponent": "os:system"}),
    ("multi:ReturnsDesk-v0", {"user": "code:InteractiveConsole"}),
    ("terminal:files-v0", {"level": "guarded"}),
    ("math:GSM8K", {"dataset": "/etc/passwd"}),
    ("game:WikiGame-v0-easy", {"url": "http://127.0.0.1:1/api.php"}),
    (GAME, {"max_turns": 10**12}),
)


async def attack(folder: str) -> None:
    command = ["-m", "gem_core.cli", "serve", "--mcp", "--parameters"]
    server = StdioServerParameters(command=sys.executable, args=command, cwd=folder)
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        neighbour = content(await session.call_tool("reset", {"environment": GAME, "seed": 3}))
        for environment, parameters in ATTACKS:
            arguments = {"environment": environment, "parameters": parameters}
            refused = await session.call_tool("reset", arguments)
            assert refused.is_error and "gem-core serve --recipe" in refused.content[0].text
        arguments = {"session": neighbour["session"], "action": "\\boxed{5}"}
        assert content(await session.call_tool("step", arguments))["observation"]
        arguments = {"environment": GAME, "parameters": {"max_turns": 3}}
        assert content(await session.call_tool("reset", arguments))["session"]


def test_no_client_runs_a_program_or_reads_a_file(tmp_path: Path) -> None:
    asyncio.run(asyncio.wait_for(attack(str(tmp_path)), 120))
    assert list(tmp_path.iterdir()) == []
