"""Run directories."""

from __future__ import annotations

import json

import pytest

from gem_core.errors import RunError
from gem_core.parity.frozen import frozen_episodes
from gem_core.training.recipe import load_recipe
from gem_core.training.runs import RUN_VARIABLE, RunDir, continue_from, current_run

RECIPE = load_recipe("guess-the-number-easy", "tiny")


def test_a_run_reads_back(tmp_path):
    run = RunDir.create(tmp_path / "run", RECIPE, "trl")
    run.log(1, {"reward/mean": 0.5})
    run.log(2, {"reward/mean": 0.75})
    run.log_eval(0, "before", {"success": 0.4})
    episodes = frozen_episodes(4)
    run.log_episodes(1, episodes)
    assert not run.finished
    run.finish({"after": 0.9})
    again = RunDir(tmp_path / "run")
    assert again.recipe == RECIPE and again.finished and again.result == {"after": 0.9}
    assert [row["reward/mean"] for row in again.metrics()] == [0.5, 0.75]
    assert again.evals()[0]["success"] == 0.4
    assert [episode for _, episode in again.episodes()] == episodes
    assert again.info["trainer"] == "trl" and "gem-core" in again.info["versions"]


def test_existing_runs_are_not_touched_by_accident(tmp_path):
    RunDir.create(tmp_path, RECIPE, "trl").log(1, {"x": 1.0})
    with pytest.raises(RunError, match="--resume"):
        RunDir.create(tmp_path, RECIPE, "trl")
    assert len(RunDir.create(tmp_path, RECIPE, "trl", "resume").metrics()) == 1
    other = load_recipe("guess-the-number-easy", "tiny", ["algorithm.lr=1.0"])
    with pytest.raises(RunError, match="algorithm"):
        RunDir.create(tmp_path, other, "trl", "resume")
    with pytest.raises(RunError, match="'trl', not 'verl'"):
        RunDir.create(tmp_path, RECIPE, "verl", "resume")
    assert RunDir.create(tmp_path, other, "trl", "overwrite").metrics() == []


def test_a_line_cut_by_a_kill_is_dropped_and_repeated_steps_count_once(tmp_path):
    run = RunDir.create(tmp_path, RECIPE, "trl")
    for step, value in [(1, 1.0), (2, 2.0), (3, 3.0), (2, 20.0)]:
        run.log(step, {"x": value})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "x"')
    assert [(row["step"], row["x"]) for row in run.metrics()] == [(1, 1.0), (2, 20.0), (3, 3.0)]


def test_a_broken_line_in_the_middle_is_an_error(tmp_path):
    run = RunDir.create(tmp_path, RECIPE, "trl")
    (tmp_path / "metrics.jsonl").write_text('{"step": 1\n' + json.dumps({"step": 2}) + "\n")
    with pytest.raises(RunError, match=r"metrics.jsonl:1 is not JSON"):
        run.metrics()


def test_a_directory_without_a_run_says_so(tmp_path):
    with pytest.raises(RunError, match="not a run"):
        _ = RunDir(tmp_path).recipe


def test_going_on_from_a_run(tmp_path):
    run = RunDir.create(tmp_path / "first", RECIPE, "trl")
    with pytest.raises(RunError, match="no model yet"):
        continue_from(RECIPE, run)
    run.model.mkdir()
    (run.model / "config.json").write_text("{}")
    second = continue_from(RECIPE, run)
    assert second.model.path == str(run.model.resolve())
    assert second.train.start == RECIPE.train.steps
    again = RunDir.create(tmp_path / "second", second, "verl")
    again.model.mkdir()
    (again.model / "config.json").write_text("{}")
    assert continue_from(second, again).train.start == 2 * RECIPE.train.steps
    with pytest.raises(RunError, match="not a run directory"):
        continue_from(RECIPE, RunDir(tmp_path / "nothing"))


def test_a_worker_finds_its_run_by_the_variable(tmp_path, monkeypatch):
    monkeypatch.setenv(RUN_VARIABLE, str(tmp_path))
    assert current_run().path == tmp_path
    monkeypatch.delenv(RUN_VARIABLE)
    with pytest.raises(RunError, match="gem-core train"):
        current_run()


def test_a_trainers_last_model_becomes_the_runs(tmp_path):
    run = RunDir.create(tmp_path / "run", RECIPE, "verl")
    source = tmp_path / "step" / "huggingface"
    with pytest.raises(RunError, match=r"verl left no model of its last step in .*huggingface"):
        run.keep_model(source)
    source.mkdir(parents=True)
    (source / "config.json").write_text('{"dtype": "bfloat16", "hidden_size": 8}')
    (source / "tokenizer.json").write_text("{}")
    run.keep_model(source)
    config = json.loads((run.model / "config.json").read_text())
    assert config == {"dtype": RECIPE.model.dtype, "hidden_size": 8}
    assert RECIPE.model.dtype == "float32" and (run.model / "tokenizer.json").exists()
