"""`DatabaseEnv`: a task with a database, solved by calls of an MCP server's tools."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from gem_core.env.parsing import get_parser, render
from gem_core.envs.database.lease import Database
from gem_core.envs.database.shop import (
    draw_shop,
    in_memory,
    read_rows,
    rows_of,
    tables_of,
    write_rows,
)
from gem_core.envs.database.tasks import TASKS, DatabaseProblem, make_expected
from gem_core.envs.games.game import Game
from gem_core.envs.task_table import tasks_of
from gem_core.errors import StateError
from gem_core.tools.mcp.session import McpError, require_sdk

if TYPE_CHECKING:
    from gem_core.env.interface import State, StepResult
    from gem_core.envs.database.shop import Tables

SUBMIT = "submit"
"""The answer that ends an episode."""
_CALL = re.compile(r"<tool_call>((?:(?!<tool_call>).)*)</tool_call>", re.DOTALL)
_LONGEST = 4000
"""Characters of a call."""
_SEEDS = 1 << 62
_TOOLS = """list_tables() returns the names of the tables.
describe(table) returns the columns of a table.
query(sql) runs one SELECT statement and returns its rows.
execute(sql) runs one INSERT, UPDATE or DELETE statement."""


class DatabaseEnv(Game):
    """Change a database as asked, through the tools of an MCP server.

    The server serves an SQLite database in the memory of this process, and is spoken to by the
    Model Context Protocol. Each action is a call,
    ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``; the observation is the server's
    answer. A statement may use 300,000 instructions of SQLite, and values of 8,000 bytes. The
    answer ``submit`` ends the episode: it is solved when every table has exactly the rows that it
    should have, in any order.

    Args:
        group: ``"insert"``, ``"update"``, ``"delete"`` or ``"report"``; ``None``: all.
        tasks: names of tasks of which one is drawn, instead of a group.
        seconds: wall seconds of a call.
        output_chars: characters of an answer that are shown.
        max_turns: the turn budget.
        answer_format: the format of ``submit``.
        format_error_ends: whether an action without a call or an answer ends the episode.
        **options: see `gem_core.envs.games.game.Game`.

    Raises:
        MissingDependencyError: the package ``mcp`` is not installed.
    """

    slow = True
    version = 1 + Game.version  # 1: statements are bounded by instructions, values by 8,000 bytes
    _state_fields = (*Game._state_fields, "_task", "_draw")
    _task: str
    _draw: int

    def __init__(
        self,
        *,
        group: str | None = None,
        tasks: Sequence[str] | None = None,
        seconds: float = 10.0,
        output_chars: int = 2000,
        max_turns: int = 12,
        answer_format: str = "tag",
        format_error_ends: bool = False,
        **options: Any,
    ):
        super().__init__(
            max_turns=max_turns,
            answer_format=answer_format,
            format_error_ends=format_error_ends,
            **options,
        )
        require_sdk()
        if output_chars < 1 or seconds <= 0:
            raise ValueError("output_chars and seconds must be positive.")
        self.output_chars = output_chars
        self.seconds = seconds
        self._varies = True
        self._tasks = tasks_of(TASKS, group, tasks)
        self._parse = _Parser(answer_format)
        self._database: Database | None = None

    def peek(self) -> str:
        """Return the next call of the reference solution; ``submit`` when it is reached."""
        if self._is_solved():
            return self._submit_action()
        for count in range(len(self._problem.solution)):
            part = self._problem._replace(solution=self._problem.solution[:count])
            if self._tables() == self._make_expected(part):
                return write_call("execute", sql=self._problem.solution[count])
        return write_call("execute", sql=self._problem.solution[0])

    def random_action(self, rng: Random) -> str:
        """Return a call that reads, or the end."""
        table = rng.choice(["customers", "products", "orders", "report"])
        actions = (
            write_call("list_tables"),
            write_call("describe", table=table),
            write_call("query", sql=f"SELECT * FROM {table} ORDER BY 1"),
            self._submit_action(),
        )
        return rng.choice(actions)

    def get_state(self) -> State:
        """Return the state with the rows of the database."""
        return {**super().get_state(), "database": self._rows()}

    def set_state(self, state: State) -> None:
        """Restore a state; see `gem_core.env.interface.Env.set_state`."""
        super().set_state(state)
        rows = state["database"]
        if rows is not None:
            self._fill(read_rows(rows))
        else:
            self._close()

    def _check_state(self, state: State) -> None:
        super()._check_state(state)
        rows = state.get("database")
        if rows is not None:
            in_memory(read_rows(rows)).close()
        elif state["status"] != 0:
            raise StateError("The state of a started episode has the rows of its database.")

    def _consistent(self) -> bool:
        return super()._consistent() and self._task in TASKS

    def _start(self) -> None:
        self._task = self._tasks[int(self.rng.random() * len(self._tasks))].name
        self._draw = self.rng.randrange(_SEEDS)
        self._restored()
        self._fill(self._drawn)

    def _restored(self) -> None:
        rng = Random(self._draw)
        self._drawn = draw_shop(rng)
        self._problem: DatabaseProblem = TASKS[self._task].draw(rng, in_memory(self._drawn))

    def _rules(self) -> str:
        example = write_call("describe", table="orders")
        return (
            "You work with the database of a shop, through these tools:\n"
            f"{_TOOLS}\n"
            f"Task: {self._problem.text}\n"
            f"Write a call like this: {example}\nYou see its result. When the task is done write "
            f"{self._submit_action()}. You have {self._budget} turns."
        )

    def _move(self, answer: str) -> StepResult:
        if not answer.startswith("{"):
            if answer == SUBMIT:
                return self._submit()
            return self._malformed(f"an answer is the word {SUBMIT}")
        if len(answer) > _LONGEST:
            return self._invalid(f"A call has at most {_LONGEST} characters.")
        call = _read_call(answer)
        if isinstance(call, str):
            return self._malformed(call)
        return self._continue(self._call_tool(*call), self._reward["step"])

    def _call_tool(self, tool: str, arguments: dict[str, Any]) -> str:
        assert self._database is not None
        reply = self._database.call(tool, arguments, self.seconds)
        text = reply.text.encode(errors="replace").decode()
        if reply.error in ("server_gone", "cannot_start"):
            raise McpError(reply.error, text)
        if len(text) > self.output_chars:
            text = f"{text[: self.output_chars]}\n[the rest is left out]"
        return text if reply.error is None else f"[The call failed: {text}]"

    def _submit(self) -> StepResult:
        if self._is_solved():
            return self._win("The task is done.", self._reward["success"])
        return self._lose("The task is not done.", self._reward["fail"], "submitted")

    def _is_solved(self) -> bool:
        return bool(self._tables() == self._make_expected(self._problem))

    def _make_expected(self, problem: DatabaseProblem) -> Any:
        return tables_of(make_expected(self._drawn, problem))

    def _tables(self) -> Any:
        assert self._database is not None
        return tables_of(self._database.connection)

    def _fill(self, tables: Tables) -> None:
        if self._database is None:
            self._database = Database(tables)
        else:
            self._database.fill(tables)

    def _rows(self) -> Any:
        return None if self._database is None else write_rows(rows_of(self._database.connection))

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def _submit_action(self) -> str:
        return render(SUBMIT, self.answer_format)

    def _answer(self, content: str) -> str:
        return content if content.startswith("<tool_call>") else super()._answer(content)

    def _example(self) -> str:
        return write_call("list_tables")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_database": self._rows()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        rows = state["_database"]
        made = None if rows is None else Database(read_rows(rows))
        self.__dict__.update({**state, "_database": made})


class _Parser:
    """Finds the last call of an action; without one, the last answer."""

    def __init__(self, answer_format: str):
        self._parse = get_parser(answer_format)

    def __call__(self, text: str) -> str | None:
        calls = [call for match in _CALL.finditer(text) if (call := match[1].strip())]
        if calls:
            return calls[-1] if calls[-1].startswith("{") else "{"
        answer = self._parse(text)
        return None if answer is None else answer.lstrip("{") or None


def write_call(tool: str, **arguments: Any) -> str:
    """Return a call as an agent writes it.

    >>> write_call("describe", table="orders")
    '<tool_call>{"name": "describe", "arguments": {"table": "orders"}}</tool_call>'
    """
    body = json.dumps({"name": tool, "arguments": arguments})
    return f"<tool_call>{body}</tool_call>"


def _read_call(text: str) -> tuple[str, dict[str, Any]] | str:
    """Return the name and arguments of a call, or what is wrong with it."""
    try:
        call = json.loads(text)
    except (ValueError, RecursionError):
        return "the call is not JSON"
    if not isinstance(call, Mapping) or not isinstance(call.get("name"), str):
        return 'a call needs a name: {"name": ..., "arguments": {...}}'
    arguments = call.get("arguments") or {}
    if not isinstance(arguments, dict):
        return "the arguments of a call must be a JSON object"
    return call["name"], arguments
