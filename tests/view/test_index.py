"""The index has what the file has: while it grows, is replaced, cut off, or malformed."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import random
import signal
import time

import pytest

from gem_core.errors import RunError
from gem_core.runs.directory import episode_store as store
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import load_recipe
from gem_view import index as index_module
from gem_view.api import Viewer
from gem_view.index import EpisodeIndex
from gem_view.query import COLUMNS, Queries

from .conftest import changed, make_episode


class PlainRun(RunDir):
    """A run of an older version: lines that are not compressed."""

    def log_episodes(self, step, episodes, split="train", advantages=None):
        with (self.path / store.PLAIN_FILE).open("a") as file:
            for episode in episodes:
                row = {"step": step, "split": split, **episode.to_dict()}
                file.write(json.dumps(row) + "\n")


@pytest.fixture(params=[RunDir, PlainRun], ids=["blocks", "lines"])
def run(request, tmp_path):
    return request.param(tmp_path)


def source_of(run):
    return run.path / (store.PLAIN_FILE if isinstance(run, PlainRun) else store.FILE)


def opened(run):
    index = EpisodeIndex(source_of(run), run.path / "cache")
    connection = index.connect()
    assert index.update(connection)
    return index, connection


def log(run, count, first=0, step=1):
    episodes = [make_episode(first + k, 7 if k % 3 else 9, seed=k) for k in range(count)]
    run.log_episodes(step, episodes)


def listed(index, connection, **options):
    answer = Queries(index).page(connection, options)
    return [dict(zip(COLUMNS, row, strict=True)) for row in answer["rows"]]


def test_rows_and_records_are_those_of_the_file(run):
    log(run, 7)
    index, connection = opened(run)
    logged = list(run.episodes())
    rows = listed(index, connection)
    assert len(rows) == len(logged) == 7
    for row, (tags, episode) in zip(rows, logged, strict=True):
        assert (row["step"], row["split"]) == (tags["step"], tags["split"])
        assert (row["env"], row["seed"], row["idx"]) == (
            episode.env_id,
            episode.seed,
            episode.index,
        )
        assert row["reward"] == episode.total_reward
        assert row["tokens"] == episode.action_tokens
        assert row["turns"] == len(episode.turns)
        record = index.record(connection, row["id"])
        assert record == {**tags, **episode.to_dict()}


def test_of_a_repeated_step_the_last_episodes_count_as_in_a_run(run):
    log(run, 4)
    run.log_episodes(1, [changed(make_episode(2, 7, 2), seed=77)])
    unknown = changed(make_episode(0, 7, 0), index=-1)
    run.log_episodes(1, [unknown, unknown])
    index, connection = opened(run)
    expected = [(episode.index, episode.seed) for _, episode in run.episodes()]
    assert [(r["idx"], r["seed"]) for r in listed(index, connection)] == expected


def test_it_follows_a_growing_file_and_waits_for_its_end(run):
    log(run, 2)
    index, connection = opened(run)
    before = index.source.read_bytes()
    log(run, 1, first=50)
    added = index.source.read_bytes()[len(before) :]
    for kept in (0, 5, 40, len(added) - 1 - (added[-1:] == b"\n")):
        index.source.write_bytes(before + added[:kept])
        assert index.update(connection)
        assert index.state(connection)["episodes"] == 2
    index.source.write_bytes(before + added)
    assert index.update(connection)
    assert [row["idx"] for row in listed(index, connection)] == [0, 1, 50]


@pytest.mark.parametrize("change", ["overwritten", "longer", "shorter", "deleted and written"])
def test_a_replaced_file_is_indexed_anew(run, change):
    log(run, 5)
    index, connection = opened(run)
    if change == "deleted and written":
        index.source.unlink()
    else:
        index.source.write_text("")
    count = {"overwritten": 5, "longer": 9, "shorter": 2, "deleted and written": 5}[change]
    log(run, count, first=100)
    assert index.update(connection)
    assert [row["idx"] for row in listed(index, connection)] == list(range(100, 100 + count))


def test_lines_that_are_no_episodes_are_counted_and_shown_nowhere(run):
    log(run, 1)
    deep = "[" * 100_000
    lines = run.path / store.PLAIN_FILE
    if run.__class__ is RunDir:
        lines.write_bytes(gzip.decompress(source_of(run).read_bytes()))
        source_of(run).unlink()
    with lines.open("a") as file:
        file.write(f'{{"step": 1}}\nnot JSON\n\n{deep}\n[1]\n{{"step": "x", "split": "train"}}\n')
        file.write('{"step": 1, "split": "a", "env_id": "e", "stop_reason": "s", "turns": 3}\n')
    log(run, 1, first=1)
    index, connection = opened(run)
    assert index.state(connection)["broken"] == 6
    assert [row["idx"] for row in listed(index, connection)] == [0, 1]
    assert index.record(connection, listed(index, connection)[1]["id"])["index"] == 1


def test_numbers_that_json_does_not_have_are_indexed(run):
    episode = make_episode(0, 7, 2**70)
    episode.turns[0].reward = float("inf")
    run.log_episodes(1, [episode])
    index, connection = opened(run)
    row = listed(index, connection)[0]
    assert row["reward"] == float("inf")
    assert row["seed"] == str(2**70)


def test_a_run_without_episodes_has_an_empty_index(run):
    index, connection = opened(run)
    assert index.state(connection)["episodes"] == 0
    assert listed(index, connection) == []
    with pytest.raises(RunError, match="no episode 5"):
        index.record(connection, 5)


def _update_slowly(path, cache):
    index_module.BATCH_BYTES = 2000
    index = EpisodeIndex(path, cache)
    connection = index.connect()
    while not index.update(connection, 1):
        time.sleep(0.002)


def test_a_killed_process_loses_nothing_and_two_processes_share_an_index(run):
    for first in range(0, 300, 5):
        log(run, 5, first)
    source = source_of(run)
    context = multiprocessing.get_context("fork")
    for seconds in (0.03, 0.1):
        process = context.Process(target=_update_slowly, args=(source, run.path / "cache"))
        process.start()
        time.sleep(seconds)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    pair = [
        context.Process(target=_update_slowly, args=(source, run.path / "cache")) for _ in range(2)
    ]
    for process in pair:
        process.start()
    for process in pair:
        process.join()
        assert process.exitcode == 0
    _, connection = opened(run)
    indexed = [row[0] for row in connection.execute("SELECT idx FROM episodes ORDER BY id")]
    assert indexed == list(range(300))


def test_filters_and_orders_agree_with_python(run):
    generator = random.Random(0)
    for step in range(1, 40):
        log(run, 5, first=step * 5, step=generator.randint(1, 9))
    index, connection = opened(run)
    whole = listed(index, connection)
    assert len(whole) == 195
    for sort in COLUMNS:
        for order in ("asc", "desc"):
            rows = listed(index, connection, sort=sort, order=order)
            values = [row[sort] for row in rows]
            assert values == sorted(values, reverse=order == "desc"), (sort, order)
    rows = listed(index, connection, success="0", step_min="3", step_max="5", seed="3")
    assert rows == [
        row for row in whole if not row["success"] and 3 <= row["step"] <= 5 and row["seed"] == 3
    ]
    assert rows
    page = Queries(index).page(connection, {"offset": "190", "limit": "50"})
    assert [row[0] for row in page["rows"]] == [row["id"] for row in whole[190:]]


@pytest.mark.parametrize(
    "options",
    [
        {"sort": "id; DROP TABLE episodes"},
        {"reward_min": "1 OR 1"},
        {"offset": "x"},
        {"step_max": "nan"},
    ],
)
def test_wrong_options_are_errors(run, options):
    log(run, 1)
    index, connection = opened(run)
    with pytest.raises(RunError):
        Queries(index).page(connection, options)
    assert listed(index, connection, split="x' OR '1'='1") == []


@pytest.mark.parametrize("chunk", [100, 1000, 8_000_000])
def test_a_text_is_found_in_what_is_shown_only(run, monkeypatch, chunk):
    monkeypatch.setattr("gem_view.query._CHUNK", chunk)
    log(run, 3)
    special = make_episode(30, 7, 1)
    special.turns[1].action = 'say "zebra"\nà ß'
    run.log_episodes(2, [special])
    log(run, 3, first=40, step=3)
    index, connection = opened(run)
    for text in ("zebra", '"zebra"\nà ß', "ß"):
        assert [row["idx"] for row in listed(index, connection, text=text)] == [30], text
    assert len(listed(index, connection, text="Guess a number")) == 7
    assert listed(index, connection, text="finish_reason") == []  # a key, shown nowhere
    assert listed(index, connection, text="zebra", step_max="1") == []


def test_a_search_that_takes_too_long_ends_and_says_so(run, monkeypatch):
    monkeypatch.setattr("gem_view.query.SEARCH_SECONDS", 0.0)
    log(run, 3)
    index, connection = opened(run)
    answer = Queries(index).page(connection, {"text": "absent"})
    assert (answer["total"], answer["complete"]) == (0, False)


def test_the_index_is_outside_the_run(run, tmp_path):
    log(run, 1)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    index, _ = opened(run)
    assert index.path.parent == tmp_path / "cache"
    after = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert {**before, "cache": after["cache"]} == after


def test_lines_that_are_moved_into_blocks_are_shown_from_there(tmp_path):
    run = PlainRun.create(tmp_path, load_recipe("guess-the-number-easy", "tiny"), "trl")
    log(run, 3)
    viewer = Viewer([run.path])
    assert viewer.episodes({"run": "0"})["total"] == 3
    log(RunDir(run.path), 2, first=3)
    assert not (run.path / store.PLAIN_FILE).exists()
    assert [row[6] for row in viewer.episodes({"run": "0"})["rows"]] == [0, 1, 2, 3, 4]
