"""Whole evaluations: every item once, whatever happens to the server or to the process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from gem_core.cli import main
from gem_core.episodes.data import StopReason
from gem_core.errors import GemError, RunError
from gem_core.evaluation.contenders import EndpointModel, ScriptedPlayer
from gem_core.evaluation.endpoint import EndpointConfig
from gem_core.evaluation.evaluation import run_evaluation
from gem_core.evaluation.failures import KINDS, EndpointError
from gem_core.evaluation.folder import ITEMS, EvalDir
from gem_core.evaluation.items import all_items
from gem_core.evaluation.paired import compare
from gem_core.evaluation.plan import count_tasks, read_subject
from gem_core.evaluation.progress import show_progress
from gem_core.evaluation.retries import RetryConfig
from gem_core.evaluation.rows import Failure, Row
from gem_core.evaluation.summary import summarise_rows
from gem_core.registration import list_envs, register
from gem_core.training import episode_store as store
from gem_core.training.recipe import load_recipe
from gem_core.training.tasks import eval_task, train_task

from .server import BAD, GOOD, Server, chat, http, unreliable

GAME = "game:GuessTheNumber-v0-easy"
HARD = "game:GuessTheNumber-v0-hard"


def evaluated(out, sources=(GAME,), contender=None, *, tasks=5, overrides=(), **options):
    """Evaluate; return the result and the directory."""
    subject = read_subject(sources, None, overrides)
    result = run_evaluation(
        subject,
        count_tasks(subject, None, tasks),
        contender or ScriptedPlayer("random"),
        out,
        progress=show_progress,
        **options,
    )
    return result, EvalDir(out)


def endpoint(server, *, concurrency=16, **options):
    retry = RetryConfig(attempts=3, first_pause_s=0.002, longest_pause_s=0.05)
    config = EndpointConfig(base_url=server.url, model="m", timeout_s=0.5, retry=retry, **options)
    return EndpointModel(config, concurrency=concurrency)


def indices(folder):
    """The item of every line of the file, repeated ones too."""
    return [json.loads(line)["item"] for line in (folder.path / ITEMS).read_text().splitlines()]


# -- items ---------------------------------------------------------------------------------------


def test_items_are_the_evaluation_episodes_of_a_run_and_more_samples_of_them():
    recipe = load_recipe(
        "guess-the-number-easy", "tiny", [f"eval.env=[{{id='{GAME}'}}, {{id='{HARD}'}}]"]
    )
    items = list(all_items([3, 2], 2))
    assert [item.index for item in items] == list(range(10))
    for item in items[:5]:
        task = eval_task(recipe, item.index)
        assert (item.env, item.seed, item.task) == (task.env, task.seed, task.group)
    assert [(i.task, i.env, i.seed) for i in items[5:]] == [
        (i.task, i.env, i.seed) for i in items[:5]
    ]


def test_seeds_of_evaluations_are_never_trained_on():
    seeds = {item.seed for item in all_items([500, 20], 3)}
    recipe = load_recipe("guess-the-number-easy")
    trained = {train_task(recipe, k).seed for k in range(2000)}
    assert max(seeds) < 0 <= min(trained)


def test_an_evaluation_is_repeatable_and_samples_differ(tmp_path):
    first, one = evaluated(tmp_path / "a", (GAME, HARD), samples=4, tasks=6)
    second, two = evaluated(
        tmp_path / "b", (GAME, HARD), ScriptedPlayer("random", 1), samples=4, tasks=6
    )
    assert first["metrics"].keys() == second["metrics"].keys()
    actions = [
        {e.index: [t.action for t in e.turns] for _, e in folder.run.episodes()}
        for folder in (one, two)
    ]
    assert actions[0] == actions[1] and len(actions[0]) == 48
    assert len({str(actions[0][item]) for item in range(0, 48, 12)}) > 1
    for name in ("success/mean", "reward/mean", "pass@4/mean", "pass^2/low"):
        assert first["metrics"][name] == second["metrics"][name]


# -- every item exactly once ---------------------------------------------------------------------


def test_every_item_has_a_result_or_a_typed_error(tmp_path):
    with Server(unreliable(1)) as server:
        result, folder = evaluated(tmp_path / "e", contender=endpoint(server), tasks=60)
        served = len(server.bodies)
    rows = folder.rows()
    assert sorted(indices(folder)) == list(range(60))
    kinds = Counter(row.error.kind if row.error else "result" for row in rows)
    assert kinds.keys() <= {"result", *KINDS} and kinds["result"] and len(kinds) >= 4
    assert result["errors"] == {kind: n for kind, n in kinds.items() if kind != "result"}
    assert result["metrics"]["episodes"] == kinds["result"]
    assert result["usage"]["requests"] == served > result["usage"]["retries"] > 0


def test_three_kills_lose_and_repeat_nothing(tmp_path):
    """The command, ended by SIGKILL in the middle, three times."""
    count = 150
    out = tmp_path / "e"
    with Server(unreliable(2)) as server:
        command = [sys.executable, "-m", "gem_core.cli", "eval", GAME, "--tasks", str(count)]
        command += ["--base-url", server.url, "--model", "m", "--attempts", "2", "--timeout", "0.4"]
        command += ["--concurrency", "24", "--out", str(out), "--resume"]
        before = b""
        for at_least in (10, 45, 80):
            process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            while len(now := _content(out / ITEMS).splitlines()) < at_least:
                assert process.poll() is None, "it ended by itself"
                time.sleep(0.01)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            assert len(now) < count
            content = _content(out / ITEMS)
            assert content.startswith(before)
            before = content[: content.rfind(b"\n") + 1]
        done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=120)
    folder = EvalDir(out)
    assert _content(out / ITEMS).startswith(before)
    assert sorted(indices(folder)) == list(range(count))
    assert sorted(e.index for _, e in folder.run.episodes()) == list(range(count))
    result = json.loads(done.stdout)
    errors = sum(result["errors"].values())
    assert result["items"] == count == errors + result["metrics"]["episodes"]
    assert done.returncode == (1 if errors else 0)


def _content(path):
    return path.read_bytes() if path.exists() else b""


def test_a_line_that_was_cut_is_played_again(tmp_path):
    out = tmp_path / "e"
    first, folder = evaluated(out)
    path = out / ITEMS
    path.write_bytes(path.read_bytes()[:-20])
    assert len(folder.rows()) == 4
    again, _ = evaluated(out, if_exists="resume")
    assert sorted(indices(folder)) == list(range(5))
    assert again["metrics"]["success/mean"] == first["metrics"]["success/mean"]
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b'{"item"\n', *lines[1:]]))
    with pytest.raises(RunError, match="is not JSON"):
        folder.rows()


def test_a_second_process_is_kept_out(tmp_path):
    out = tmp_path / "e"
    evaluated(out)
    subject = read_subject([GAME])
    plan = EvalDir(out).plan
    with (
        EvalDir(out).open(subject.recipe, plan, "resume"),
        pytest.raises(RunError, match="in use by process"),
    ):
        evaluated(out, if_exists="resume")


def test_another_evaluation_is_not_continued(tmp_path):
    out = tmp_path / "e"
    evaluated(out)
    for options in ({"tasks": 6}, {"samples": 2}, {"contender": ScriptedPlayer("expert")}):
        with pytest.raises(RunError, match=r"is another evaluation \(it differs in"):
            evaluated(out, if_exists="resume", **options)
    with pytest.raises(RunError, match="already holds a run"):
        evaluated(out)
    result, _ = evaluated(out, tasks=2, if_exists="overwrite")
    assert result["items"] == 2


def test_items_with_errors_are_played_again_when_asked(tmp_path):
    out = tmp_path / "e"
    with Server(lambda n, body: BAD["refused"]) as server:
        result, folder = evaluated(out, contender=endpoint(server))
        port = server.port
    assert result["errors"] == {"refused": 5}
    assert "success/mean" not in result["metrics"]
    with Server(lambda n, body: [GOOD]) as server:
        plan = json.loads((out / "eval.json").read_text().replace(str(port), str(server.port)))
        (out / "eval.json").write_text(json.dumps(plan))
        result, _ = evaluated(out, contender=endpoint(server), if_exists="resume")
        assert result["errors"] == {"refused": 5} and not server.bodies
        result, _ = evaluated(
            out, contender=endpoint(server), if_exists="resume", retry_errors=True
        )
    assert result["errors"] == {} and result["metrics"]["episodes"] == 5
    assert [row.item for row in folder.rows()] == list(range(5))


def test_a_wrong_key_stops_at_once_and_can_be_resumed(tmp_path):
    out = tmp_path / "e"
    answers = [[GOOD]] * 8 + [[http(401, {"error": "key"})]] * 1000
    with Server(lambda n, body: answers[n]) as server:
        with pytest.raises(EndpointError, match="401"):
            evaluated(out, contender=endpoint(server, concurrency=2), tasks=40)
        assert 0 < len(EvalDir(out).rows()) < 40
        answers[:] = [[GOOD]] * 1000
        evaluated(out, contender=endpoint(server), tasks=40, if_exists="resume")
    assert sorted(indices(EvalDir(out))) == list(range(40))


def test_seconds_and_tokens_of_an_item_are_limited(tmp_path):
    with Server(lambda n, body: [2.0, GOOD]) as server:
        slow, folder = evaluated(
            tmp_path / "slow",
            contender=EndpointModel(EndpointConfig(base_url=server.url, model="m")),
            overrides=["limits.episode_deadline_s=0.1"],
        )
    assert {row.stop for row in folder.rows()} == {StopReason.DEADLINE.value}
    assert slow["errors"] == {} and slow["metrics"]["success/mean"] == 0
    with Server(lambda n, body: [http(200, chat("\\boxed{51}"))]) as server:
        _, folder = evaluated(tmp_path / "long", (HARD,), endpoint(server, item_tokens=30), tasks=3)
    stops = {(row.stop, row.turns, row.usage.prompt_tokens) for row in folder.rows()}
    assert stops <= {("truncated_tokens", 3, 30), ("terminated", 1, 10), ("terminated", 2, 20)}
    assert ("truncated_tokens", 3, 30) in stops


def test_a_broken_environment_is_an_error_of_its_items(tmp_path):
    register("test:FailsAtSix-v0", "gem_core.parity.frozen:_Scripted", turns=1, dense=0, raises=1)
    result, folder = evaluated(
        tmp_path / "e", ("test:FailsAtSix-v0",), contender=_Speaker(), tasks=3
    )
    assert result["errors"] == {"env_error": 3}
    assert "scripted fault" in folder.rows()[0].error.message


class _Speaker(ScriptedPlayer):
    """Answers the same at each turn."""

    def __init__(self):
        super().__init__("random")

    def play(self, recipe, items, record):
        with Server(lambda n, body: [GOOD]) as server:
            endpoint(server).play(recipe, items, record)


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_a_prompt_of_text_has_the_end_of_each_action_once(tmp_path, reason):
    answer = http(200, {"choices": [{"text": "\\boxed{11}", "finish_reason": reason}]})
    with Server(lambda n, body: [answer]) as server:
        evaluated(
            tmp_path / "e",
            (HARD,),
            endpoint(server, api="completions"),
            tasks=1,
            overrides=["context.template=qwen3_game", "limits.cut_action=pass"],
        )
    first, second = (body["prompt"] for body in server.bodies[:2])
    assert second.startswith(first + "\\boxed{11}<|im_end|>\n<|im_start|>user\nObservation: ")
    assert second.endswith("<|im_end|>\n<|im_start|>assistant\n")
    assert server.bodies[0]["stop"] == ["<|im_end|>"]


# -- GEM's evaluation sets ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Local files with the columns of the real data; each question is there once."""
    folder = tmp_path_factory.mktemp("tables")
    rows = {
        "math": [{"problem": f"What is {k} + 1?", "answer": str(k + 1)} for k in range(37)],
        "qa": [{"question": f"Who is number {k}?", "answer": [f"N{k}"]} for k in range(23)],
        "code": [
            {"problem": f"Print {k}.", "tests": {"inputs": [""], "outputs": [f"{k}\n"]}}
            for k in range(5)
        ],
    }
    paths = {}
    for name, table in rows.items():
        paths[name] = folder / f"{name}.jsonl"
        paths[name].write_text("".join(json.dumps(row) + "\n" for row in table))
    return paths


def _table_of(env_id, tables):
    if env_id == "eval:CodeContest":
        return tables["code"]
    mathematics = ("MATH500", "AMC", "OlympiadBench", "Minerva", "AIME24")
    return tables["math" if env_id.partition(":")[2] in mathematics else "qa"]


@pytest.mark.parametrize("concurrency", [1, 7, 500])
def test_every_item_of_the_evaluation_sets_is_asked_once(tmp_path, tables, concurrency):
    ids = [i for i in list_envs("eval:*") if concurrency == 7 or i != "eval:CodeContest"]
    overrides = [
        f"env.{k}.kwargs.dataset={_table_of(env_id, tables)}" for k, env_id in enumerate(ids)
    ]
    result, folder = evaluated(
        tmp_path / "e",
        tuple(ids),
        ScriptedPlayer("random", concurrency),
        tasks=None,
        overrides=overrides,
    )
    asked = Counter()
    for _, episode in folder.run.episodes():
        asked[episode.env_id, episode.turns[0].observation] += 1
    expected = sum(len(_table_of(i, tables).read_text().splitlines()) for i in ids)
    assert len(asked) == expected == result["items"] and set(asked.values()) == {1}
    assert [entry["id"] for entry in result["environments"]] == ids


def test_items_of_a_training_set_are_also_asked_once(tmp_path):
    overrides = ["env.0.kwargs.dataset=sample"]
    _, folder = evaluated(tmp_path / "e", ("math:GSM8K",), tasks=None, overrides=overrides)
    asked = Counter(e.turns[0].observation for _, e in folder.run.episodes())
    assert set(asked.values()) == {1} and len(asked) == len(folder.rows()) > 10


# -- what is made of it --------------------------------------------------------------------------


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
        return Row(**place, success=success, stop="terminated", error=error)

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


# -- the command ---------------------------------------------------------------------------------


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
