"""The page over folders that train, quickstart, compare and eval wrote, and over damaged ones."""

from __future__ import annotations

import os
import subprocess

import pytest

from gem_compare.runner import trainer_python
from gem_core.cli import main
from gem_view.api import Viewer

from .test_page import Page, chromium

__all__ = ["chromium"]
GAME = "guess-the-number-easy"
SMALL = ("train.steps=2", "eval.episodes=20", "model.tiny.warm_start_steps=40")
SETS = [word for value in SMALL for word in ("--set", value)]
GRID = ["--baselines", GAME, "--trainers", "trl", "--algorithms", "rebn", "--seeds", "0"]
COMMANDS = {
    "train": ["train", GAME, "--profile", "tiny", "--trainer", "trl", "--run", "train", *SETS],
    "quickstart": ["quickstart", "--run", "quickstart", *SETS],
    "compare": ["compare", *GRID, "--quick", "--out", "compare"],
    "eval": ["eval", "train", "--episodes", "4", "--out", "eval"],
    "player": ["eval", GAME, "--player", "expert", "--episodes", "4", "--out", "player"],
    "rescore": ["eval", "--rescore", "train", "--out", "rescored"],
}
CELL = f"compare/{GAME}/trl/rebn/seed0"
WRITTEN = {"train", "quickstart", CELL, "eval", "player", "rescored"}
TRAINED = {"train", "quickstart", CELL}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """What each command wrote, in TRL's environment, and a copy of a run that is damaged."""
    folder = tmp_path_factory.mktemp("written")
    program = [trainer_python("trl"), "-m", "gem_core.cli"]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    for name, words in COMMANDS.items():
        command = [*program, *words]
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
        assert done.returncode == 0, (name, done.stdout[-2000:], done.stderr[-2000:])
    return folder


@pytest.fixture
def runs(written, tmp_path, monkeypatch):
    """What the fixture ``server`` serves."""
    monkeypatch.setenv("GEM_CORE_CACHE", str(tmp_path / "cache"))
    return written


@pytest.fixture
def damaged(runs):
    """A damaged copy beside the others, while a test runs."""
    source, target = runs / "train", runs / "damaged"
    target.mkdir()
    for name in ("recipe.json", "run.json", "result.json", "evals.jsonl", "episodes.jsonl.gz"):
        (target / name).write_bytes((source / name).read_bytes())
    lines = (source / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (target / "metrics.jsonl").write_bytes(lines[0][:40] + b"\n" + lines[1])
    os.mkfifo(target / "failed.json")
    yield target
    for path in target.iterdir():
        path.unlink()
    target.rmdir()


@pytest.fixture
def page(chromium, damaged, server):
    chromium.set_window_size(1200, 900)
    page = Page(chromium, server.address)
    chromium.get_log("browser")
    yield page
    assert [entry["message"] for entry in chromium.get_log("browser")] == []


def numbers(viewer):
    return {run["name"]: run["id"] for run in viewer.list_runs({})["runs"]}


def play_over(page, viewer):
    """Open every page of every run."""
    count = len(WRITTEN) + 1
    page.open().has(f"{count} of {count} runs")
    listed = {
        cells[1].text: [cell.text for cell in cells]
        for row in page.all("#runs tbody tr")
        for cells in [row.find_elements("css selector", "td")]
    }
    assert listed.keys() == {*WRITTEN, "damaged"}
    assert all(listed[name][6] == "finished" for name in WRITTEN), listed
    assert listed["damaged"][6].startswith("damaged: failed.json is a named pipe")
    assert listed["eval"][10] != "\N{EN DASH}" and listed["player"][10].startswith("1 (")
    for name, number in numbers(viewer).items():
        page.open(f"run/{number}").has(name, "h1")
        page.has("environments")
        if name in TRAINED:
            page.wait(lambda: page.all(".chart path"), name)
        page.has("Evaluations")
        reasons = [element.text for element in page.all(".damage")]
        if name == "damaged":
            assert len(reasons) == 2
            assert reasons[0].startswith("Damaged: failed.json is a named pipe")
            assert reasons[1].startswith("Damaged: metrics.jsonl:1 is not JSON")
        else:
            assert reasons == []
        page.open(f"run/{number}/episodes")
        listed_ids = page.wait(lambda: page.rows(), name)  # an export has the last ones only
        page.open(f"run/{number}/episode/{listed_ids[0]}").has("Turn 1")
        assert page.all(".error") == []


def test_the_pages_over_folders_that_the_commands_wrote(page, server):
    play_over(page, server.viewer)


def test_an_export_of_folders_that_the_commands_wrote(chromium, damaged, runs, tmp_path):
    target = tmp_path / "report.html"
    assert main(["view", str(runs), "--export", str(target)]) == 0
    page = Page(chromium, target.as_uri())
    chromium.get_log("browser")
    play_over(page, Viewer([runs]))
    assert chromium.get_log("browser") == []


def test_the_report_of_a_comparison_shows_its_run(chromium, written):
    page = Page(chromium, (written / "compare" / "report.html").as_uri())
    page.open().has("1 of 1 runs")
    page.has("1 of 1 cells finished.", "#report")
