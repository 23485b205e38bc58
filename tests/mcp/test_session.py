"""Sessions with MCP servers: a real one from PyPI, ours, one that dies, hangs or talks nonsense."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gem_core.tools.mcp import McpError, McpPool, McpServer, McpSession, pool_of

BAD = McpServer((sys.executable, str(Path(__file__).parent / "bad_server.py")))


@pytest.fixture(scope="module")
def bad() -> Iterator[McpPool]:
    """A server whose tools misbehave; see bad_server.py."""
    pool = McpPool(BAD)
    yield pool
    pool.close()


def test_a_server_of_pypi_works() -> None:
    """mcp-server-time, which this project has no part in."""
    pool = pool_of(McpServer((sys.executable, "-m", "mcp_server_time")))
    session = pool.lease()
    assert {tool.name for tool in session.tools} == {"get_current_time", "convert_time"}
    arguments = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    reply = session.call("convert_time", arguments)
    assert reply.error is None and "T21:00" in reply.text
    wrong = session.call("convert_time", {**arguments, "source_timezone": "Mars/Olympus"})
    assert wrong.error == "tool_error" and "Mars" in wrong.text
    assert session.call("no_such_tool", {}).error in ("tool_error", "protocol_error")
    assert session.alive
    pool.give_back(session)
    assert pool.lease() is session  # kept open
    session.close()


def test_a_call_that_hangs_ends_at_its_deadline_and_the_session_goes_on(bad: McpPool) -> None:
    session = bad.lease()
    assert session.call("hang", {}, 0.3).error == "timeout"  # the server never answers
    assert session.call("echo", {"text": "still here"}).text == "still here"
    bad.give_back(session)


def test_nonsense_on_the_wire_does_no_harm(bad: McpPool) -> None:
    session = bad.lease()
    reply = session.call("garbage", {})
    assert (reply.text, reply.error) == ("after the garbage", None)
    assert session.call("wrong_result", {}).error == "protocol_error"
    assert session.call("echo", {"text": "still here"}).error is None
    bad.give_back(session)


def test_a_server_that_dies_is_a_failed_call_and_not_lent_again(bad: McpPool) -> None:
    session = bad.lease()
    assert session.call("die", {}).error == "server_gone"
    assert not session.alive
    assert session.call("echo", {"text": "x"}).error == "server_gone"
    bad.give_back(session)
    other = bad.lease()
    assert other is not session and other.call("echo", {"text": "x"}).error is None
    bad.give_back(other)


def test_what_cannot_be_started_says_why() -> None:
    with pytest.raises(McpError, match="no-such-command") as missing:
        McpSession(McpServer(("no-such-command",)))
    assert missing.value.kind == "cannot_start"
    code = "import sys; sys.exit('no database was given')"
    with pytest.raises(McpError, match="no database was given"):
        McpSession(McpServer((sys.executable, "-c", code)))
    with pytest.raises(McpError, match=r"within 0\.3 s"):
        McpSession(McpServer((sys.executable, "-c", "input()\ninput()")), start_seconds=0.3)
    with pytest.raises(McpError):
        McpSession(McpServer(url="http://127.0.0.1:9/mcp"))
    with pytest.raises(ValueError, match="one of command, url and here"):
        McpSession(McpServer())


def test_calls_do_not_hold_up_the_callers_event_loop(bad: McpPool) -> None:
    session = bad.lease()

    async def play() -> tuple[int, str | None]:
        call = asyncio.ensure_future(session.acall("hang", {}, 0.4))
        ticks = 0
        while not call.done():
            await asyncio.sleep(0.01)
            ticks += 1
        return ticks, (await call).error

    ticks, error = asyncio.run(play())
    assert error == "timeout" and ticks >= 10
    bad.give_back(session)
