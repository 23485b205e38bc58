"""``terminal:*``: every task is solved by its solution, judged by what is there, restorable."""

from __future__ import annotations

import json
import pickle
from random import Random

import pytest

import gem_core
from gem_core.envs.players import get_player, play_episode
from gem_core.envs.terminal import TASKS, TerminalEnv
from gem_core.errors import UnknownNameError
from gem_core.execution.sandbox import SandboxError

SUBMIT = "<answer>submit</answer>"


def make(*tasks: str, **kwargs: object) -> TerminalEnv:
    env = gem_core.make("terminal:files-v0", group=None, tasks=list(tasks), **kwargs)
    assert isinstance(env, TerminalEnv)
    return env


def test_there_are_enough_tasks_of_four_groups() -> None:
    assert len(TASKS) >= 20
    assert {task.group for task in TASKS.values()} == {"files", "text", "git", "programs"}
    drawn = {name: [task.draw(Random(seed)) for seed in range(6)] for name, task in TASKS.items()}
    for name, problems in drawn.items():
        assert len({repr(problem) for problem in problems}) >= 5, name
        assert all(problem.wanted or problem.probes for problem in problems), name


@pytest.mark.parametrize("name", TASKS)
def test_the_solution_solves_it_and_nothing_does_not(name: str) -> None:
    env = make(name)
    env.reset(seed=5)
    assert not env._is_solved()
    player = get_player("expert", "terminal:files-v0", 0, env=env)
    result = play_episode(env, player, seed=5)
    assert result.success and result.turns == 2
    env.reset(seed=5)
    obs, reward, terminated, _, info = env.step(SUBMIT)
    assert (reward, terminated, info["success"]) == (0.0, True, False) and "not reached" in obs


@pytest.mark.parametrize("level", ["strict", "confined"])
def test_levels(level: str) -> None:
    env = make("find_commit", level=level)
    player = get_player("expert", "terminal:files-v0", 0, env=env)
    assert play_episode(env, player, seed=0).success
    assert env._shell is not None and env._shell.run("true").level == level


def test_an_answer_that_is_wrong_in_one_place_is_wrong() -> None:
    env = make("replace_value")
    env.reset(seed=0)
    env.step(env.peek())
    assert env._is_solved()
    env.step("<answer>echo extra = 1 >> settings.ini</answer>")
    assert not env.step(SUBMIT)[4]["success"]


def test_a_program_is_tried_on_more_than_the_example() -> None:
    env = make("add_arguments")
    env.reset(seed=0)
    name = env._problem.probes[0][0].split()[1]
    env.step(f"<answer>echo 'echo 7' > {name}</answer>")
    assert not env.step(SUBMIT)[4]["success"]


def test_state_continues_anywhere() -> None:
    env = make("sum_column")
    env.reset(seed=1)
    env.step("<answer>mkdir d; cd d; X=5; f() { echo f$1; }; echo hi > a</answer>")
    more = "<answer>pwd; echo $X; f 1; cat a; head -n 1 ../sales.csv</answer>"
    state = json.loads(json.dumps(env.get_state()))
    copy = pickle.loads(pickle.dumps(env))
    other = make("sum_column")
    other.set_state(state)
    expected = "/home/agent/d\n5\nf1\nhi\nname,city,amount"
    assert [e.step(more)[0] for e in (env, copy, other)] == [expected] * 3


def test_what_the_agent_is_told() -> None:
    env = make("sum_column", seconds=0.5, output_chars=100)
    env.reset(seed=1)
    assert env.step("<answer>false</answer>")[0] == "[exit status 1]"
    assert env.step("<answer>true</answer>")[0] == "[no output]"
    assert "not found" in env.step("<answer>no-such-program</answer>")[0]
    late = env.step("<answer>echo started; echo x > kept; sleep 5</answer>")[0]
    assert late == "started\n[The command was ended after 0.5 seconds.]"
    assert env.step("<answer>cat kept</answer>")[0] == "x"
    flood = env.step("<answer>seq 1000</answer>")[0]
    assert "characters are left out" in flood and flood.endswith("1000") and len(flood) < 200
    many = env.step("<answer>touch $(seq 600)</answer>")[0]
    assert many == "[The command was undone: it left more files than are kept.]"
    assert env.step("<answer>ls</answer>")[0] == "kept\nsales.csv"
    assert env.step(f"<answer>echo {'x' * 4000}</answer>")[4]["error"] == "invalid_action"
    assert env.step("nothing")[4]["error"] == "invalid_format"


def test_what_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'sum_column'"):
        make("sum_colum")
    with pytest.raises(UnknownNameError):
        gem_core.make("terminal:files-v0", group="music")
    env = make("find_commit")
    draw = TASKS["find_commit"].draw
    changed = TASKS["find_commit"]._replace(
        draw=lambda rng: draw(rng)._replace(setup="no-such-git init")
    )
    monkeypatch.setitem(TASKS, "find_commit", changed)
    with pytest.raises(SandboxError, match="install the programs"):
        env.reset(seed=123456)
