"""Damaged and hostile runs beside good ones: the good ones open, and each bad one says why."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from gem_core.cli import main
from gem_core.errors import RunError
from gem_core.runs.directory import episode_store as store
from gem_core.runs.directory.run_dir import RunDir
from gem_view.api import Viewer
from gem_view.export import collect

from . import hostile

GAME = "game:GuessTheNumber-v0-easy"
GOOD = ("good-train", "good-eval", "good-eval-2")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Folders that the commands wrote: of a training (its record), and of two evaluations."""
    folder = tmp_path_factory.mktemp("written")
    shutil.copytree(hostile.RECORDED, folder / "good-train")
    for name, player in (("good-eval", "expert"), ("good-eval-2", "random")):
        out = str(folder / name)
        assert main(["eval", GAME, "--player", player, "--tasks", "4", "--out", out]) == 0
    return folder


@pytest.fixture(scope="module")
def hundred(written, tmp_path_factory):
    """The good folders and more than a hundred bad ones, and what is wrong with each."""
    folder = shutil.copytree(written, tmp_path_factory.mktemp("hundred") / "runs")
    wrong = hostile.write_all(folder, folder / "good-train", folder / "good-eval")
    assert len(wrong) >= 100
    return folder, wrong


@pytest.fixture
def runs(hundred, tmp_path, monkeypatch):
    """What the fixture ``server`` of the other tests serves."""
    monkeypatch.setenv("GEM_CORE_CACHE", str(tmp_path / "cache"))
    return hundred[0]


def test_a_hundred_hostile_runs_beside_three_good_ones(get, ask, hundred):
    _, wrong = hundred
    listed = {run["name"]: run for run in get("api/runs")["runs"]}
    assert listed.keys() == {*GOOD, *wrong}
    for name in GOOD:
        run = listed[name]
        assert (run["status"], run["damage"]) == ("finished", []), name
        details = get(f"api/run?run={run['id']}")
        assert details["recipe_table"]["env"][0]["id"] == GAME
        assert details["evals"]
        assert get(f"api/curves?runs={run['id']}")["series"]
    for name in GOOD[1:]:
        episodes = get(f"api/episodes?run={listed[name]['id']}")
        assert episodes["total"] == 4
        episode = get(f"api/episode?run={listed[name]['id']}&id=1")
        assert episode["record"]["env_id"] == GAME
    for name, what in wrong.items():
        number = listed[name]["id"]
        details = get(f"api/run?run={number}")  # it opens, and says why
        assert details["damage"], what
        assert details["status"] == "damaged"
        assert all(reason and "\n" not in reason for reason in details["damage"]), what
        file = what.partition(", ")[2].partition(":")[0] or what.removeprefix("no ")
        assert any(file in reason for reason in details["damage"]), (what, details["damage"])
        if hostile.EPISODES not in what:
            assert listed[name]["status"] == "damaged", what
        status, _, body = ask(f"/api/episodes?run={number}&text=a")
        assert status in (200, 400), (what, body)
        assert b"root:" not in body
    assert len(get("api/curves")["series"]) == len(listed)


def test_a_hundred_hostile_runs_are_exported(hundred, tmp_path, monkeypatch, unpacked):
    monkeypatch.setenv("GEM_CORE_CACHE", str(tmp_path / "cache"))
    folder, wrong = hundred
    target = tmp_path / "report.html"
    assert main(["view", str(folder), "--export", str(target)]) == 0
    html = target.read_text(encoding="utf-8")
    data = unpacked(html)
    names = {run["name"]: str(run["id"]) for run in data["runs"]["runs"]}
    assert names.keys() == {*GOOD, *wrong}
    assert [what for name, what in wrong.items() if not data["run"][names[name]]["damage"]] == []
    assert [len(data["episodes"][names[name]]["rows"]) for name in GOOD] == [0, 4, 4]
    assert "root:" not in json.dumps(data)
    assert str(folder) not in json.dumps(data)


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
from gem_core.cli import main
sys.exit(main(["view", *sys.argv[1:]]))
"""


def test_the_hundred_need_little_memory_and_no_reader(hundred, tmp_path):
    """A named pipe does not wait, endless zeros and a terabyte of holes are not read.

    The command may have 1 GiB of addresses; the largest child of this process says nothing of it,
    as a fork has the size of the tests themselves.
    """
    folder, _ = hundred
    command = [sys.executable, "-c", LIMITED, str(folder), "--export", str(tmp_path / "a.html")]
    env = {**os.environ, "GEM_CORE_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_a_bomb_is_not_unpacked(written, tmp_path):
    run = RunDir(shutil.copytree(written / "good-eval", tmp_path / "run"))
    (run.path / store.FILE).write_bytes(hostile.bomb())
    tracemalloc.start()
    with pytest.raises(RunError, match="damaged"):
        list(run.episodes())
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


def test_a_link_within_is_not_followed_and_one_to_elsewhere_is_named(written, tmp_path, capsys):
    root = tmp_path / "runs"
    shutil.copytree(written / "good-eval", root / "a")
    (root / "b").symlink_to(root / "a")
    (root / "c").symlink_to(written)
    linked = tmp_path / "linked"
    linked.symlink_to(root)  # the root itself may be a link
    viewer = Viewer([linked])
    assert [name for name, _ in viewer.runs] == ["a"]
    (line,) = viewer.left_out
    assert "c is a link to a folder elsewhere" in line
    assert main(["view", str(root), "--export", str(tmp_path / "a.html")]) == 0
    assert "Left out: " in capsys.readouterr().err


def test_a_path_that_a_run_names_is_not_read(written, tmp_path):
    """A model elsewhere, and links below model and checkpoints, could be any file."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    vocabulary = {"model": {"vocab": {}}, "decoder": {"type": "ByteLevel"}, "added_tokens": []}
    (elsewhere / "tokenizer.json").write_text(json.dumps(vocabulary))
    run = Path(shutil.copytree(written / "good-eval", tmp_path / "runs" / "run"))
    recipe = json.loads((run / "recipe.json").read_text())
    recipe["model"]["path"] = str(elsewhere)
    (run / "recipe.json").write_text(json.dumps(recipe))
    viewer = Viewer([tmp_path / "runs"])
    assert viewer.episode({"run": "0", "id": "1"})["pieces"] is None
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "latest").symlink_to(elsewhere)
    (run / "model").symlink_to(elsewhere)
    assert viewer.episode({"run": "0", "id": "1"})["pieces"] is None
    (run / "model").unlink()
    shutil.copytree(elsewhere, run / "model")
    assert viewer.episode({"run": "0", "id": "1"})["pieces"] is not None
    (run / "model" / "tokenizer.json").write_text('{"model": {"vocab": {"a": "b"}}')
    answer = viewer.episode({"run": "0", "id": "1"})
    assert answer["pieces"] is None and "tokenizer.json" in answer["note"]


CHANGED = {
    "no action": lambda r: r["turns"][0].pop("action"),
    "an observation of another type": lambda r: r["turns"][0].update(observation=[1]),
    "a list of other length": lambda r: r["segments"].append(
        {"token_ids": [1], "loss_mask": [], "spans": []}
    ),
    "tokens beyond the end": lambda r: r["segments"].append(
        {"token_ids": [1], "loss_mask": [1], "spans": [[0, 0, 1 << 40]]}
    ),
    "advantages of text": lambda r: r.update(advantages=["x"]),
    "an unknown kind": lambda r: r["turns"][0].update(kind="x"),
    "nested": lambda r: r["turns"][0].update(info=nested(900)),
}


def nested(depth):
    value: object = 1
    for _ in range(depth):
        value = [value]
    return {"a": value}


@pytest.mark.parametrize("what", CHANGED)
def test_one_damaged_episode_does_not_stop_the_others(written, tmp_path, what, unpacked):
    run = RunDir(shutil.copytree(written / "good-eval", tmp_path / "runs" / "run"))
    records = list(store.read_records(run.path / store.FILE))
    CHANGED[what](records[1])
    (run.path / store.FILE).unlink()
    store.append(run.path, records)
    viewer = Viewer([tmp_path / "runs"])
    assert viewer.episodes({"run": "0"})["total"] == 4
    assert viewer.episode({"run": "0", "id": "3"})["record"]["index"] == 2
    exported = collect(viewer, 10)["episode"]
    assert exported["0/3"]["record"]["index"] == 2
    if what == "nested":  # only what is shown is limited
        assert viewer.episode({"run": "0", "id": "2"})["record"]
        return
    with pytest.raises(RunError, match="Episode 2 is damaged"):
        viewer.episode({"run": "0", "id": "2"})
    assert "Episode 2 is damaged" in exported["0/2"]["error"]


def test_a_name_that_is_no_text_is_listed(written, tmp_path):
    target = os.fsencode(tmp_path) + b"/runs/\xff<script>"
    shutil.copytree(os.fsencode(written / "good-eval"), target)
    server_view = Viewer([tmp_path / "runs"])
    from gem_view.answers import encode

    (run,) = json.loads(encode(server_view.list_runs({})))["runs"]
    assert run["status"] == "finished" and run["name"].endswith("<script>")
    assert json.loads(encode(server_view.episodes({"run": "0"})))["total"] == 4
