"""The server answers this machine's own page only, with what the runs have, and never writes."""

from __future__ import annotations

import json
import re
import threading

import pytest

from gem_core.cli import main
from gem_core.errors import RunError
from gem_core.runs.directory.lock import exclusive
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import load_recipe
from gem_view.api import Viewer
from gem_view.export import collect
from gem_view.server import PAGE_FILES, POLICY, SCRIPTS, make_server, page_file

from .conftest import ATTACK, PER_STEP, log_step, make_run

TOTAL = 12


def test_the_list_of_runs(get):
    oat, trl = get("api/runs")["runs"]
    assert (oat["name"], oat["trainer"], oat["status"]) == ("test/oat/seed0", "oat", "finished")
    assert (trl["name"], trl["trainer"], trl["status"]) == ("test/trl/seed0", "trl", "unfinished")
    assert (oat["step"], oat["steps"], oat["now"]) == (3, 3, 1.0)
    assert oat["before"]["success/mean"] == 0.25
    assert oat["after"]["success/mean"] == 0.5


def test_one_run_and_its_curves(get):
    run = get("api/run?run=0")
    assert run["episodes"]["episodes"] == TOTAL
    assert run["episodes"]["choices"]["env"] == ["game:Test-v0"]
    assert run["recipe_table"]["name"] == "guess-the-number-easy"
    assert run["metrics"] == ["loss/policy", "reward/mean", "success/mean"]
    curves = get("api/curves?metric=success/mean")
    assert curves["series"]["1"]["train"][-1] == [3, 1.0]
    assert curves["series"]["1"]["eval"] == [[0, 0.25]]
    assert get("api/curves?metric=absent&runs=1")["series"] == {"1": {"train": [], "eval": []}}


def test_an_episode_with_the_texts_of_its_tokens(get):
    episode = get("api/episode?run=0&id=2")
    record = episode["record"]
    assert (episode["previous"], episode["next"]) == (1, 3)
    assert record["advantages"] == [0.5, -1.0]
    (pieces,) = episode["pieces"]
    (segment,) = record["segments"]
    assert len(pieces) == len(segment["token_ids"])
    for turn, start, end in segment["spans"]:
        assert "".join(pieces[start:end]) == record["turns"][turn]["action"]
    assert record["turns"][1]["observation"] in "".join(pieces)  # with a character of four bytes
    assert get("api/episode?run=0&id=12")["next"] is None


def test_an_attack_arrives_as_text_in_json(ask):
    status, headers, body = ask("/api/episode?run=0&id=2")
    assert status == 200
    assert headers["Content-Type"] == "application/json"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert ATTACK in json.loads(body)["record"]["turns"][0]["observation"]


def test_the_page_makes_no_html_of_strings():
    """Text becomes text nodes; nothing in the scripts can turn a string into HTML or code."""
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|srcdoc"
    for name in SCRIPTS:
        assert not re.search(forbidden, page_file(name)), name
        assert "setTimeout('" not in page_file(name)
    html = page_file("index.html")
    assert not re.search(r"<script(?![^>]* src=)|\son\w+=|style=", html)
    assert re.findall(r'src="([^"]+)"', html) == list(SCRIPTS)
    everything = "".join(map(page_file, PAGE_FILES))
    assert set(re.findall(r"https?://[^\s\"')]+", everything)) == {"http://www.w3.org/2000/svg"}
    assert sum(len(page_file(name).encode()) for name in PAGE_FILES) < 1_000_000


@pytest.mark.parametrize("path", ["/", "/main.js", "/api/runs", "/absent", "/api/run?run=99"])
def test_every_answer_has_the_policy(ask, path):
    _, headers, _ = ask(path)
    assert headers["Content-Security-Policy"] == POLICY
    assert "default-src 'none'" in POLICY
    assert "script-src 'self';" in POLICY
    assert "unsafe" not in POLICY
    assert headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example", ""],
)
def test_a_host_header_of_another_name_is_refused(ask, host):
    for path in ("/", "/api/runs"):
        status, _, body = ask(path, host=host)
        assert status == 403
        assert b"grid" not in body


def test_two_host_headers_are_refused_and_localhost_is_allowed(ask, server):
    status, _, _ = ask("/api/runs", Host="evil.example")  # in addition to the right one
    assert status == 403
    status, _, _ = ask("/api/runs", host=f"localhost:{server.server_port}")
    assert status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/..%2f..%2fetc%2fpasswd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/api/../api/runs",
        "/api/__init__",
        "/api/episode/../../run.json",
        "/page/index.html",
        "/server.py",
        "/api/",
    ],
)
def test_no_address_is_a_path(ask, path):
    status, _, body = ask(path)
    assert status == 404
    assert b"root:" not in body


@pytest.mark.parametrize(
    "query",
    [
        "run?run=../../etc",
        "run?run=-1",
        "run?run=2",
        "run",
        "episode?run=0&id=1 OR 1=1",
        "episode?run=0&id=999",
        "episode?run=0&id=99999999999999999999",
        "episodes?run=0&sort=start",
        "tasks?runs=0,0",
        "tasks?runs=",
        "task?runs=0,1&step=9&split=train&idx=0",
    ],
)
def test_wrong_questions_are_answered_with_an_error(ask, query):
    status, _, body = ask(f"/api/{query.replace(' ', '%20')}")
    assert status == 400
    assert json.loads(body)["error"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_it_only_reads(ask, method, runs):
    before = sorted((path, path.stat().st_mtime_ns) for path in runs.rglob("*"))
    status, _, _ = ask("/api/runs", method=method)
    assert status == 405
    for path in ("/", "/api/runs", "/api/run?run=0", "/api/episodes?run=1&text=Guess"):
        assert ask(path)[0] == 200
    assert sorted((path, path.stat().st_mtime_ns) for path in runs.rglob("*")) == before


def test_only_this_machine_can_connect(server):
    assert server.server_address[0] == "127.0.0.1"


def test_the_same_task_in_two_runs_and_where_they_part(get):
    tasks = get("api/tasks?runs=0,1")["tasks"]
    assert [task["idx"] for task in tasks] == list(range(TOTAL))
    (different,) = get("api/tasks?runs=0,1&different=1")["tasks"]
    assert (different["idx"], different["step"]) == (2, 1)
    assert [result["success"] for result in different["results"]] == [0, 1]
    answer = get("api/task?runs=0,1&step=1&split=train&idx=2")
    parting = answer["parting"]
    oat, trl = (episode["record"]["segments"][0] for episode in answer["episodes"])
    position = parting["position"]
    assert oat["token_ids"][:position] == trl["token_ids"][:position]
    assert parting["ids"] == [ord("9"), ord("7")]
    assert parting["turn"] == 1
    assert answer["episodes"][0]["pieces"][0][position] == "9"
    assert get("api/task?runs=0,1&step=1&split=train&idx=3")["parting"] is None


def test_a_running_training_is_followed(get, runs):
    run = RunDir(runs / "test" / "trl" / "seed0")
    before = get("api/state")["runs"]
    with exclusive(run.path):
        assert get("api/runs")["runs"][1]["status"] == "running"
        log_step(run, 4, guess=7)
    after = get("api/state")["runs"]
    assert (before[0] == after[0], before[1] == after[1]) == (True, False)
    assert get("api/episodes?run=1")["total"] == TOTAL + 4
    assert get("api/runs")["runs"][1]["step"] == 4
    assert get("api/runs")["runs"][1]["status"] == "unfinished"


def test_a_run_that_begins_later_appears_and_the_others_keep_their_numbers(get, runs, monkeypatch):
    monkeypatch.setattr("gem_view.api._RESCAN_SECONDS", 0.0)
    make_run(runs / "test" / "another" / "seed0", "verl", guess=7)
    names = [run["name"] for run in get("api/runs")["runs"]]
    assert names == ["test/oat/seed0", "test/trl/seed0", "test/another/seed0"]


def test_many_questions_at_once(get):
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(get("api/episodes?run=0&sort=reward")))
        for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [answers[0]] * 16
    assert answers[0]["total"] == TOTAL


def test_a_directory_without_runs_and_a_used_port_are_errors(tmp_path, server, runs, capsys):
    with pytest.raises(RunError, match="no run in"):
        Viewer([runs / "test" / "oat" / "seed0" / "model"])
    with pytest.raises(RunError, match="--port"):
        make_server([runs], server.server_port)
    assert main(["view", str(tmp_path / "absent")]) == 2
    assert "is not a directory" in capsys.readouterr().err


def test_the_command_exports(runs, tmp_path, capsys, unpacked):
    target = tmp_path / "report.html"
    assert main(["view", str(runs), "--export", str(target), "--episodes", "6"]) == 0
    assert str(target) in capsys.readouterr().out
    html = target.read_text(encoding="utf-8")
    assert html.count("<script") == len(SCRIPTS) + 1
    assert not re.search(r'\bsrc="|<link rel="stylesheet"', html)
    assert "<script>window.attacked" not in html
    assert "script-src 'sha256-" in html
    data = unpacked(html)
    assert [len(data["episodes"][n]["rows"]) for n in "01"] == [6, 6]
    assert [task["idx"] for task in data["tasks"]["tasks"]] == list(range(6, 12))
    assert "command" not in data["run"]["0"]["info"]
    assert str(runs) not in json.dumps(data)


def test_an_exported_episode_cannot_end_the_block_of_data(runs, tmp_path, unpacked):
    target = tmp_path / "report.html"
    assert main(["view", str(runs), "--export", str(target)]) == 0
    html = target.read_text(encoding="utf-8")
    assert re.search(r'<script type="text/plain" id="gem-data">[A-Za-z0-9+/=]+</script>\n', html)
    data = unpacked(html)
    assert ATTACK in data["episode"]["0/2"]["record"]["turns"][0]["observation"]


def test_a_run_without_episodes_needs_no_index(tmp_path, monkeypatch):
    monkeypatch.setenv("GEM_CORE_CACHE", str(tmp_path / "cache"))
    run = RunDir.create(tmp_path / "run", load_recipe("guess-the-number-easy", "tiny"), "trl")
    viewer = Viewer([run.path])
    assert viewer.run({"run": "0"})["episodes"]["choices"] == {"split": [], "env": [], "stop": []}
    assert collect(viewer, 10)["episodes"][0]["rows"] == []
    assert not (tmp_path / "cache").exists()
    assert viewer.episodes({"run": "0"})["total"] == 0
    log_step(run, 1, 7)
    assert viewer.run({"run": "0"})["episodes"]["episodes"] == PER_STEP
