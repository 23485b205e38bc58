"""Records of runs, and the tables made from them."""

from __future__ import annotations

import pytest

from gem_core.errors import RunError
from gem_core.evaluation.outcomes import TaskOutcome, add_outcome, read_outcomes
from gem_core.results import before_after, record, result_rows
from gem_core.results.tables import success
from gem_core.runs.directory.files import write_object
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import load_recipe

RESULT = {
    "format": 1,
    "name": "guess-the-number-easy",
    "trainer": "trl",
    "estimator": "rebn",
    "seed": 0,
    "steps": 2,
    "before": None,
    "after": {"success/mean": 0.5, "success/low": 0.25, "success/high": 0.75},
    "seconds": {"train": 3.21},
}


@pytest.fixture
def run(tmp_path):
    """A run of two steps, not finished."""
    run = RunDir.create(tmp_path / "run", load_recipe("guess-the-number-easy", "tiny"), "trl")
    for step in (1, 2):
        run.log(step, {"success/mean": step / 3, "stop/aborted": 0.0, "odd/metric": 1.0})
    run.log_eval(2, "after", RESULT["after"])
    return run


def test_a_record_is_a_run_directory_without_paths_and_weights(run, tmp_path):
    run.finish(RESULT)
    add_outcome(run, TaskOutcome("after", True, "engine 1.0", "0110"))
    (run.model).mkdir()
    kept = record(run, tmp_path / "kept")
    assert kept.result == run.result
    assert kept.recipe == run.recipe
    assert kept.evals() == run.evals()
    assert read_outcomes(kept) == read_outcomes(run) != {}
    assert kept.metrics() == [
        {"step": 1, "success/mean": 0.33333},
        {"step": 2, "success/mean": 0.66667},
    ]
    assert kept.info["versions"] == run.info["versions"]
    assert "command" not in kept.info
    assert not kept.model.exists()
    assert before_after([kept]) == before_after([run])


def test_a_record_does_not_contain_the_path_of_another_runs_model(tmp_path):
    origin = str(tmp_path / "first" / "model")
    recipe = load_recipe("guess-the-number-easy", "tiny", [f"model.path={origin}"])
    run = RunDir.create(tmp_path / "second", recipe, "trl")
    run.finish({**RESULT, "model": origin})
    native = {"native": ["--actor.model_name_or_path", origin, f"--other={origin}/x"]}
    write_object(run.path / "run.json", {**run.info, **native})
    kept = record(run, tmp_path / "kept")
    assert kept.result["model"] == kept.recipe.model.path == "first/model"
    assert kept.info["native"][1:] == ["first/model", "--other=first/model/x"]
    assert not any(str(tmp_path) in file.read_text() for file in kept.path.iterdir())


def test_an_unfinished_run_leaves_no_record(run, tmp_path):
    with pytest.raises(RunError, match="did not finish"):
        record(run, tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


def test_a_result_of_another_format_is_refused():
    with pytest.raises(RunError, match="format 3"):
        result_rows([{**RESULT, "format": 3}])


def test_a_score_names_the_episodes_that_failed():
    evaluation = {"success/mean": 0.5, "success/low": 0.4, "success/high": 0.6, "episodes": 200.0}
    assert success(evaluation) == "0.500 [0.400, 0.600]"
    shares = {"stop/deadline": 0.255, "stop/env_error": 0.005, "stop/truncated_turns": 0.2}
    assert success({**evaluation, **shares}) == "0.500 [0.400, 0.600] (52 failed)"
