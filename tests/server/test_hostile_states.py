"""``load``: a state of a client is data. Every id, every part of its state, hostile values."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gem_core.envs.database.env import write_call
from gem_server.app import EnvServer
from gem_server.limits import ServerLimits
from gem_server.sessions import Session, memory_mb

from .hostile_states import deep, hostile

FAMILIES = ("game:*", "multi:*", "mcp:*", "terminal:*", "webshop:*", "rg:*", "*:*")
_OTHERS = ("game:", "multi:", "mcp:", "terminal:", "webshop:", "rg:")


@cache
def ids(family: str) -> list[str]:
    """Return the ids of a family in a process of its own: other tests register theirs in this."""
    program = "import sys, gem_core; print(*gem_core.list_envs(sys.argv[1]))"
    command = [sys.executable, "-c", program, family]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return [name for name in listed if family != "*:*" or not name.startswith(_OTHERS)]


class Client:
    """Messages to one session of a server, through its handler."""

    def __init__(self, server: EnvServer, session: Session) -> None:
        self.server = server
        self.session = session

    async def ask(self, kind: str, data: Any = None) -> dict[str, Any]:
        """Return the answer to a message that went through JSON."""
        message = {"type": kind, "data": {} if data is None else data}
        reply = await self.server._reply(self.session, json.dumps(message))
        assert reply is not None
        return json.loads(json.dumps(reply))

    async def load(self, state: Any) -> str:
        """Return ``"ok"`` or the code of the refusal, which is one line."""
        reply = await self.ask("load", state)
        if reply["type"] == "load":
            return "ok"
        text = reply["data"]["message"]
        assert "\n" not in text and len(text) < 600, text
        return str(reply["data"]["code"])

    async def play(self, rng: Random) -> None:
        """Play two actions; an environment that took a state does not fail."""
        for _ in range(2):
            if self.session.env.unwrapped._status != 1:
                return
            reply = await self.ask("step", {"text": self.session.env.random_action(rng)})
            assert reply["type"] == "observation", reply


async def opened(server: EnvServer, name: str, steps: int = 2) -> tuple[Client, dict[str, Any]]:
    """Return a session in the middle of an episode, and its state."""
    client = Client(server, await server.sessions.open(name, {}))
    await client.ask("reset", {"seed": 5})
    rng = Random(5)
    for _ in range(steps):
        if client.session.env.unwrapped._status == 1:
            await client.ask("step", {"text": client.session.env.random_action(rng)})
    return client, (await client.ask("save"))["data"]


async def attack(name: str, most: int, counts: Counter[str]) -> None:
    server = EnvServer(ServerLimits(call_s=20))
    client, state = await opened(server, name)
    rng = Random(name)
    for changed in hostile(state, rng, most):
        answer = await client.load(changed)
        counts[answer] += 1
        assert answer in ("ok", "VALIDATION_ERROR", "INVALID_JSON"), (name, answer, changed)
        if answer == "ok":
            await client.play(rng)
        else:
            counts["unchanged"] += 1
    assert await client.load(state) == "ok", f"{name}: the session is no longer usable"
    assert (await client.ask("save"))["data"] == state
    await server.sessions.close_all()


@pytest.mark.filterwarnings("ignore::gem_core.envs._data_source.SampleDataWarning")
@pytest.mark.parametrize("family", FAMILIES)
def test_a_changed_state_is_taken_or_refused_and_never_breaks_a_session(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    counts: Counter[str] = Counter()
    before = memory_mb()
    many = {"terminal:*": 40, "rg:*": 6, "*:*": 20}.get(family, 120)

    async def all_ids() -> None:
        for name in ids(family):
            await attack(name, many, counts)

    asyncio.run(all_ids())
    assert counts["VALIDATION_ERROR"] > len(ids(family)) * 3 and counts["ok"], counts
    assert memory_mb() - before < 400
    assert list(tmp_path.iterdir()) == []


def test_a_refused_state_leaves_the_environment_as_it_was() -> None:
    async def play() -> None:
        server = EnvServer()
        client, state = await opened(server, "game:Sudoku-v0-easy")
        for wrong in (
            {},
            {**state, "status": 3},
            {**state, "rng": [3, [0] * 624 + [624], None]},
            {**state, "rng": None},
            {**state, "fields": {**state["fields"], "_side": 10**9}},
            {**state, "fields": {**state["fields"], "_left": 0.5}},
            {**state, "fields": {**state["fields"], "_turns": 1}},
            {**state, "fields": deep()},
        ):
            assert await client.load(wrong) == "VALIDATION_ERROR"
            assert (await client.ask("save"))["data"] == state
        hint = await client.ask("load", {**state, "fields": {**state["fields"], "_turns": 1}})
        assert "Did you mean '_turn'?" in hint["data"]["message"]

    asyncio.run(play())


SCRIPTS = (
    "ATTACH DATABASE '{file}' AS x; CREATE TABLE x.t (a);",
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT max(x) FROM c;",
    "VACUUM INTO '{file}';",
)


@pytest.mark.parametrize("script", SCRIPTS)
def test_no_sql_of_a_state_is_run(script: str, tmp_path: Path) -> None:
    file = tmp_path / "made.db"
    sql = script.format(file=file)

    async def play() -> None:
        server = EnvServer()
        client, state = await opened(server, "mcp:update-v0")
        rows = state["database"]
        assert set(rows) == {"customers", "products", "orders", "report"}
        twice = {**rows, "customers": [*rows["customers"], rows["customers"][0]]}
        many = {**rows, "report": [["y" * 900, 1]] * 2000}
        for database in (
            sql,
            {**rows, sql: []},
            {**rows, "report": [[sql]]},
            {**rows, "report": sql},
            twice,
            many,
        ):
            assert await client.load({**state, "database": database}) == "VALIDATION_ERROR"
        # As a value it is a value.
        with_text = {**state, "database": {**rows, "report": [[sql, 1]]}}
        assert await client.load(with_text) == "ok"
        assert (await client.ask("save"))["data"] == with_text
        await server.sessions.close_all()

    asyncio.run(play())
    assert not file.exists() and list(tmp_path.iterdir()) == []


BOMBS = (
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT max(x) FROM c",
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "
    "SELECT printf('%7900d', x) y FROM c ORDER BY y",
    "SELECT printf('%1000000000d', 1)",
    "SELECT length(zeroblob(1000000000))",
    "SELECT count(*) FROM orders a, orders b, orders c, orders d, orders e, orders f",
    "SELECT * FROM pragma_database_list",
    "SELECT a || a FROM (SELECT replace(hex(zeroblob(7000)), '0', 'xx') a)",
    "SELECT 1 WHERE printf('%7900d', 1) LIKE '" + "%_" * 200 + "'",
)


def test_statements_of_an_agent_are_bounded(tmp_path: Path) -> None:
    async def play() -> None:
        server = EnvServer()
        client, _ = await opened(server, "mcp:update-v0", steps=0)
        neighbour, _ = await opened(server, "mcp:update-v0", steps=0)
        before = memory_mb()
        for sql in BOMBS:
            action = write_call("query", sql=sql)
            text = (await client.ask("step", {"text": action}))["data"]["observation"]["text"]
            assert text.startswith("[The call failed") or text.endswith("[null]"), (sql, text)
            rows = write_call("query", sql="SELECT count(*) FROM orders")
            await neighbour.ask("reset", {"seed": 5})
            answer = await neighbour.ask("step", {"text": rows})
            assert "[20]" in answer["data"]["observation"]["text"]
        assert memory_mb() - before < 300
        await server.sessions.close_all()

    asyncio.run(play())


def test_a_value_that_is_no_text_does_not_break_the_end() -> None:
    async def play() -> None:
        server = EnvServer()
        client, _ = await opened(server, "mcp:report-v0", steps=0)
        for value in ("CAST(x'ff' AS TEXT)", "x'00ff'", "9e999", "-9e999", "9223372036854775807"):
            call = write_call("execute", sql=f"INSERT INTO report VALUES ({value}, 1)")
            answer = await client.ask("step", {"text": call})
            assert "1 row changed" in answer["data"]["observation"]["text"]
        state = (await client.ask("save"))["data"]
        assert await client.load(json.loads(json.dumps(state))) == "ok"
        assert (await client.ask("save"))["data"] == state
        ended = await client.ask("step", {"text": "<answer>submit</answer>"})
        assert ended["data"]["done"] and not ended["data"]["observation"]["info"]["success"]
        await server.sessions.close_all()

    asyncio.run(play())
