"""``mcp:*``: tasks with a database behind a real MCP server, judged by the database's state."""

from __future__ import annotations

import copy
from random import Random

import pytest

import gem_core
from gem_core.envs.database import TASKS
from gem_core.envs.database.env import DatabaseEnv, write_call
from gem_core.envs.database.shop import draw_shop, in_memory, tables_of
from gem_core.envs.database.tasks import make_expected
from gem_core.envs.players import get_player, play_episode
from gem_core.errors import UnknownNameError

SUBMIT = "<answer>submit</answer>"


def make(**kwargs: object) -> DatabaseEnv:
    env = gem_core.make("mcp:update-v0", **kwargs).unwrapped
    assert isinstance(env, DatabaseEnv)
    return env


def test_there_are_enough_tasks_and_each_id_has_some() -> None:
    assert len(TASKS) >= 8
    for env_id in gem_core.list_envs("mcp:*"):
        env = gem_core.make(env_id)
        tasks = {env.reset(seed=seed)[0].split("Task: ")[1] for seed in range(20)}
        assert len(tasks) >= 4


@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_solved_by_its_solution_and_not_before(name: str) -> None:
    for seed in range(30):
        rng = Random(seed)
        tables = draw_shop(rng)
        problem = TASKS[name].draw(rng, in_memory(tables))
        assert tables_of(in_memory(tables)) != tables_of(make_expected(tables, problem)), seed


@pytest.mark.parametrize("name", TASKS)
def test_the_player_solves_it_through_the_server(name: str) -> None:
    env = make(group=None, tasks=[name])
    player = get_player("expert", "mcp:update-v0", 0, env=env)
    assert play_episode(env, player, seed=1).success
    env.reset(seed=2)
    assert env.step(SUBMIT)[1:3] == (0.0, True)


def test_rows_may_be_in_any_order_but_none_may_be_too_many() -> None:
    env = make(group=None, tasks=["report_cities"])
    env.reset(seed=0)
    rows = env.step(write_call("query", sql="SELECT city, count(*) FROM customers GROUP BY city"))[
        0
    ]
    values = [eval(row) for row in rows.splitlines()[1:]]
    for city, count in reversed(values):
        env.step(write_call("execute", sql=f"INSERT INTO report VALUES ('{city}', {count})"))
    state = env.get_state()
    assert env.step(SUBMIT)[4]["success"]
    env.set_state(state)
    env.step(write_call("execute", sql="INSERT INTO report VALUES ('Paris', 1)"))
    assert not env.step(SUBMIT)[4]["success"]


def test_a_server_that_was_killed_is_started_again() -> None:
    env = make()
    env.reset(seed=0)
    env.step(write_call("execute", sql="UPDATE products SET stock = 1"))
    database = env._database
    assert database is not None and database._session is not None
    database._session.close()
    assert "[1]" in env.step(write_call("query", sql="SELECT DISTINCT stock FROM products"))[0]


def test_copies_do_not_share_the_database() -> None:
    env = make()
    env.reset(seed=0)
    count = write_call("query", sql="SELECT count(*) FROM orders")
    assert "[20]" in env.step(count)[0]
    other = copy.deepcopy(env)
    other.step(write_call("execute", sql="DELETE FROM orders"))
    assert "[0]" in other.step(count)[0] and "[20]" in env.step(count)[0]


def test_wrong_calls_are_told_and_unknown_tasks_refused() -> None:
    env = make()
    env.reset(seed=0)
    for action in ("<tool_call>nope</tool_call>", "<answer>yes</answer>", "hello"):
        assert env.step(action)[4]["error"] == "invalid_format"
    assert "no such table" in env.step(write_call("query", sql="SELECT * FROM nope"))[0]
    assert "[The call failed" in env.step(write_call("nope"))[0]
    with pytest.raises(UnknownNameError):
        make(group="nope")
    with pytest.raises(UnknownNameError):
        make(group=None, tasks=["nope"])
