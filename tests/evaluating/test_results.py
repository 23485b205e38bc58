"""What is made of the items, and the command."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from gem_core.cli import main
from gem_core.env.registration import list_envs
from gem_core.errors import GemError
from gem_core.evaluation.contenders import ScriptedPlayer
from gem_core.evaluation.folder import EvalDir
from gem_core.evaluation.paired import compare
from gem_core.evaluation.rows import Failure, ItemRow
from gem_core.evaluation.summary import summarise_rows
from gem_core.runs.directory import episode_store as store

from .common import GAME, HARD, evaluated


def test_the_summary_is_that_of_the_rows(tmp_path):
    result, folder = evaluated(tmp_path / "e", (GAME, HARD), samples=3, tasks=8)
    rows = folder.rows()
    metrics = result["metrics"]
    assert metrics["success/mean"] == pytest.approx(sum(r.success for r in rows) / len(rows))
    assert metrics["pass@1/mean"] == pytest.approx(metrics["success/mean"])
    by_task = [[r.success for r in rows if r.task == t] for t in range(16)]
    assert metrics["pass@3/mean"] == pytest.approx(sum(map(any, by_task)) / 16)
    assert metrics["pass^3/mean"] == pytest.approx(sum(map(all, by_task)) / 16)
    assert metrics["turns/mean"] == pytest.approx(sum(r.turns for r in rows) / len(rows))
    assert metrics["success/low"] <= metrics["success/mean"] <= metrics["success/high"]
    assert {"versions", "commit", "hardware", "data"} <= result.keys()
    assert folder.run.result == json.loads(json.dumps(result))


def test_items_without_a_result_are_in_no_mean():
    def row(item, success, error=None):
        task, sample = item % 2, item // 2
        place = {"item": item, "task": task, "sample": sample, "env": 0, "env_id": "e", "seed": -1}
        return ItemRow(**place, success=success, stop="terminated", error=error)

    rows = [row(0, False, Failure("timeout", "")), row(1, False), row(2, True), row(3, False)]
    summary = summarise_rows(rows, 2)
    metrics = summary["metrics"]
    assert summary["errors"] == {"timeout": 1}
    assert (metrics["items"], metrics["episodes"], metrics["tasks"]) == (4, 3, 2)
    assert metrics["success/mean"] == 0.5  # the mean of 1 and 0, not of three or four items
    assert metrics["pass@1/mean"] == 0.5 and metrics["pass@2/mean"] == 0  # one task has two


def test_two_evaluations_are_compared_task_by_task(tmp_path):
    evaluated(tmp_path / "a", (GAME, HARD), tasks=12, samples=2)
    evaluated(tmp_path / "b", (HARD, GAME), ScriptedPlayer("expert"), tasks=9)
    compared = compare(EvalDir(tmp_path / "a"), EvalDir(tmp_path / "b"))
    success = {one.env: one for one in compared if one.metric == "success"}
    assert success.keys() == {"all", GAME, HARD}
    assert (success["all"].tasks, success[GAME].tasks) == (18, 9)
    assert success[HARD].second == 1.0 and success["all"].p < 0.01
    assert success["all"].difference == pytest.approx(success["all"].second - success["all"].first)
    assert success["all"].low > 0
    same = compare(EvalDir(tmp_path / "a"), EvalDir(tmp_path / "a"))
    assert {(one.difference, one.low, one.high, one.p) for one in same} == {(0.0, 0.0, 0.0, 1.0)}


def test_other_parameters_are_other_tasks(tmp_path):
    evaluated(tmp_path / "a")
    evaluated(tmp_path / "b", overrides=["env.0.kwargs.max_number=7"])
    with pytest.raises(GemError, match="no task in common"):
        compare(EvalDir(tmp_path / "a"), EvalDir(tmp_path / "b"))


def command(*words):
    return main(["eval", *map(str, words)])


def test_the_command_prints_a_table_and_keeps_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command(GAME, "--player", "expert", "--tasks", 3, "-n", 2) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "player:expert: 6 items, 2 per task"
    assert lines[2].split()[:3] == ["environment", "tasks", "success"]
    assert lines[3].split()[:3] == [GAME, "3", "1.000"]
    assert list(tmp_path.iterdir()) == []


def test_patterns_and_recipes_name_environments(capsys):
    assert command("game:GuessTheNumber-v0-*", "--player", "random", "--tasks", 1, "--json") == 0
    ids = [entry["id"] for entry in json.loads(capsys.readouterr().out)["environments"]]
    assert ids == list_envs("game:GuessTheNumber-v0-*") and len(ids) > 2
    assert command("sudoku-easy", "--player", "expert", "--episodes", 4, "--json") == 0
    assert json.loads(capsys.readouterr().out)["items"] == 4


def test_scoring_again_changes_nothing_unless_the_environment_did(capsys, tmp_path):
    out = tmp_path / "e"
    command(GAME, HARD, "--player", "random", "--tasks", 4, "-n", 2, "--out", out)
    assert command("--rescore", out, "--out", tmp_path / "again") == 0
    assert capsys.readouterr().out.rstrip().endswith("0 of 16 episodes have another score or end.")
    first, again = EvalDir(out).run.result, EvalDir(tmp_path / "again").run.result
    for name in ("success/mean", "reward/mean", "turns/mean", "pass@2/mean"):
        assert first["metrics"][name] == again["metrics"][name]
    assert again["model"] == "player:random"
    rows = list(store.read_records(out / store.FILE))
    (out / store.FILE).unlink()
    rows[0]["turns"][-1]["reward"] += 0.5
    store.append(out, rows)
    assert command("--rescore", out) == 0
    assert "1 of 16 episodes have another" in capsys.readouterr().out


def test_scoring_again_needs_no_server(capsys, tmp_path):
    """The actions are played here, wherever the run had its environments."""
    out = tmp_path / "e"
    command(GAME, "--player", "random", "--tasks", 2, "--out", out)
    file = out / "recipe.json"
    recipe = json.loads(file.read_text())
    workers = {"backend": "server", "address": "http://127.0.0.1:9"}
    file.write_text(json.dumps({**recipe, "workers": {**recipe["workers"], **workers}}))
    assert command("--rescore", out) == 0
    assert "0 of 2 episodes have another" in capsys.readouterr().out


def test_stored_actions_that_do_not_reach_the_end_are_an_error(capsys, tmp_path):
    out = tmp_path / "e"
    command(HARD, "--player", "expert", "--tasks", 2, "--out", out)
    rows = list(store.read_records(out / store.FILE))
    (out / store.FILE).unlink()
    rows[1]["turns"].pop()
    store.append(out, rows)
    assert command("--rescore", out) == 1
    assert "1 items have no result: actions_missing" in capsys.readouterr().out


def test_another_task_is_not_scored(capsys, tmp_path):
    out = tmp_path / "e"
    rows = [{"problem": f"What is {k} + 1?", "answer": str(k + 1)} for k in range(4)]
    path = tmp_path / "table.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    dataset = f"env.0.kwargs.dataset={path}"
    assert command("eval:AMC", "--player", "expert", "--set", dataset, "--out", out) == 0
    rows[2]["problem"] = "What is 2 + 2?"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    capsys.readouterr()
    done = subprocess.run(
        [sys.executable, "-m", "gem_core.cli", "eval", "--rescore", out, "--json"],
        capture_output=True,
        text=True,
    )
    result = json.loads(done.stdout)
    assert result["errors"] == {"other_task": 1} and result["metrics"]["success/mean"] == 1


def test_the_table_has_a_row_per_model_and_the_best_first(capsys, tmp_path):
    for player in ("random", "expert"):
        command(GAME, HARD, "--player", player, "--tasks", 5, "--out", tmp_path / "all" / player)
    capsys.readouterr()
    assert command("--table", tmp_path, "--markdown") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"| model | mean | {GAME} | {HARD} |"
    assert [line.split(" | ")[0] for line in lines[2:4]] == ["| player:expert", "| player:random"]
    command("--compare", tmp_path / "all" / "random", tmp_path / "all" / "expert", "--json")
    assert json.loads(capsys.readouterr().out)[0]["env"] == "all"
    assert main(["report", str(tmp_path / "all" / "random")]) == 2
    assert "is an evaluation: see gem-core eval --table" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "Name what to evaluate"),
        ([GAME, "--table", "x"], "Name what to evaluate"),
        ([GAME], "Name who plays"),
        ([GAME, "--player", "expert", "--model", "m"], "exclude each other"),
        ([GAME, "--base-url", "http://127.0.0.1:1"], "needs --model"),
        (["game:Gues", "--player", "expert"], "Unknown environment 'game:Gues'"),
        (["nothing:*", "--player", "expert"], "No environment matches"),
        (["sudoku-easy", GAME, "--player", "expert"], "evaluated alone"),
        ([GAME, "--player", "expert", "--tasks", "0"], "at least one task"),
        ([GAME, "--player", "expert", "--tasks", "1", "--episodes", "1"], "give one"),
        ([GAME, "--player", "expert", "-n", "0"], "at least 1"),
        ([GAME, "--player", "expert", "--resume"], "need --out"),
        ([GAME, "--player", "expert", "--concurrency", "0"], "at least 1"),
        ([GAME, "--player", "expert", "--item-seconds", "-1"], "must be positive"),
        ([GAME, "--base-url", "http://h", "--model", "m", "--body", "{"], "--body is not JSON"),
        ([GAME, "--base-url", "http://h", "--model", "m", "--body", "[]"], "a JSON object"),
        (["eval:AMC", "--player", "expert", "--set", "env.0.kwargs.dataset=no.jsonl"], "no.jsonl"),
        (["--table", "/nonexistent"], "no finished evaluation"),
        (["--compare", "/nonexistent", "/nonexistent"], "not the directory of an evaluation"),
        (["--rescore", "/nonexistent"], "not a run directory"),
    ],
)  # fmt: skip
def test_mistakes_are_explained(words, message, capsys):
    assert command(*words) == 2
    assert message in capsys.readouterr().err
