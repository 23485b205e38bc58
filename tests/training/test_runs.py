"""Run directories."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from gem_core.errors import RunError
from gem_core.runs.directory.run_dir import (
    RUN_VARIABLE,
    RunDir,
    continue_from,
    current_run,
    describe_machine,
)
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.trainers import installed_version, list_trainers
from gem_parity.frozen import frozen_episodes

RECIPE = load_recipe("guess-the-number-easy", "tiny")


def test_a_run_reads_back(tmp_path):
    run = RunDir.create(tmp_path / "run", RECIPE, "trl")
    run.log(1, {"reward/mean": 0.5})
    run.log(2, {"reward/mean": 0.75})
    run.log_eval(0, "before", {"success": 0.4})
    episodes = frozen_episodes(4)
    run.log_episodes(1, episodes)
    assert not run.finished
    run.finish({"after": {"success/mean": 0.9}})
    again = RunDir(tmp_path / "run")
    assert (
        again.recipe == RECIPE
        and again.finished
        and again.result == {"after": {"success/mean": 0.9}}
    )
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


def test_a_run_from_before_a_key_was_added_resumes_with_its_default(tmp_path):
    RunDir.create(tmp_path, RECIPE, "trl").log(1, {"x": 1.0})
    stored = RECIPE.to_dict()
    del stored["train"]["save_minutes"]
    (tmp_path / "recipe.json").write_text(json.dumps(stored))
    assert len(RunDir.create(tmp_path, RECIPE, "trl", "resume").metrics()) == 1
    other = load_recipe("guess-the-number-easy", "tiny", ["train.save_minutes=7"])
    with pytest.raises(RunError, match=r"\['train\.save_minutes'\]"):
        RunDir.create(tmp_path, other, "trl", "resume")


def test_a_line_cut_by_a_kill_is_dropped_and_repeated_steps_count_once(tmp_path):
    run = RunDir.create(tmp_path, RECIPE, "trl")
    for step, value in [(1, 1.0), (2, 2.0), (3, 3.0), (2, 20.0)]:
        run.log(step, {"x": value})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "x"')
    assert [(row["step"], row["x"]) for row in run.metrics()] == [(1, 1.0), (2, 20.0), (3, 3.0)]


def test_a_run_resumes_whatever_the_order_of_an_environments_parameters(tmp_path):
    recipe = load_recipe("chain-sum", "tiny")
    assert list(recipe.env[0].kwargs) != sorted(recipe.env[0].kwargs)  # as the file sorts them
    RunDir.create(tmp_path, recipe, "trl")
    RunDir.create(tmp_path, recipe, "trl", "resume")


def test_a_run_with_a_cut_line_is_readable_after_it_is_resumed(tmp_path):
    run = RunDir.create(tmp_path, RECIPE, "trl")
    for step in (1, 2):
        run.log(step, {"x": 1.0})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "x"')
    (tmp_path / "evals.jsonl").write_text('{"step": 0, "when": "before"}')  # no end of line
    run = RunDir.create(tmp_path, RECIPE, "trl", "resume")
    for step in (2, 3):
        run.log(step, {"x": 2.0})
    run.log_eval(3, "after", {})
    assert [(row["step"], row["x"]) for row in run.metrics()] == [(1, 1.0), (2, 2.0), (3, 2.0)]
    assert [row["when"] for row in run.evals()] == ["before", "after"]


def test_episodes_and_evaluations_of_a_repeated_step_count_once(tmp_path):
    run = RunDir.create(tmp_path, RECIPE, "trl")
    episodes = frozen_episodes(4)
    run.log_episodes(1, episodes[:2])
    run.log_episodes(2, episodes[2:])
    run.log_episodes(2, [replace(episodes[2], seed=77), episodes[3]])
    run.log_episodes(2, [replace(episodes[2], index=-1)] * 2)  # nothing identifies these
    logged = [(tags["step"], episode.index, episode.seed) for tags, episode in run.episodes()]
    seeds = [episode.seed for episode in episodes]
    assert logged == [
        (1, 0, seeds[0]),
        (1, 1, seeds[1]),
        (2, 2, 77),
        (2, 3, seeds[3]),
        (2, -1, seeds[2]),
        (2, -1, seeds[2]),
    ]
    for success in (0.1, 0.2):
        run.log_eval(5, "during", {"success": success})
    assert [row["success"] for row in run.evals()] == [0.2]


def test_the_versions_of_every_installed_trainer_are_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr("gem_core.runs.hardware._VERSIONS", set())
    declared = {trainer.distribution for trainer in list_trainers().values()}
    installed = {name for name in declared if installed_version(name)}
    assert set(describe_machine()["versions"]) == installed
    monkeypatch.setattr(
        "gem_core.runs.hardware.list_trainers",
        lambda: {"x": SimpleNamespace(distribution="PyTest")},
    )
    assert set(describe_machine()["versions"]) == {"pytest"}


def test_a_broken_line_in_the_middle_is_an_error(tmp_path):
    run = RunDir.create(tmp_path, RECIPE, "trl")
    (tmp_path / "metrics.jsonl").write_text('{"step": 1\n' + json.dumps({"step": 2}) + "\n")
    with pytest.raises(RunError, match=r"metrics.jsonl:1 is not JSON"):
        run.metrics()


def test_a_directory_without_a_run_is_an_error(tmp_path):
    with pytest.raises(RunError, match="not a run"):
        _ = RunDir(tmp_path).recipe


def test_continuing_from_a_run(tmp_path):
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
