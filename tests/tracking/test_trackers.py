"""The real packages receive what a run records: every value once, also across interruptions."""

from __future__ import annotations

import json
import sqlite3

import pytest

from gem_core.cli import main
from gem_core.errors import MissingDependencyError, RecipeError
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.tracking import TRACKERS, require_trackers, send, tracked
from gem_core.runs.tracking.follow import STATE
from gem_core.runs.tracking.trackers import RunFacts


@pytest.fixture
def make_run(tmp_path):
    def make(*to):
        recipe = load_recipe("guess-the-number-easy", "tiny", [f"track.to={json.dumps(to)}"])
        return RunDir.create(tmp_path / "run", recipe, "trl", "error")

    return make


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Everything stays on this machine, below the test's directory."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    return tmp_path


def fill(run, first, last):
    for step in range(first, last + 1):
        run.log(step, {"success/mean": step / 10, "loss/policy": -step, "note": None})


def read_tensorboard(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    events = EventAccumulator(str(run.path / "tensorboard"))
    events.Reload()
    names = events.Tags()["tensors"]
    return {
        name: [(e.step, float(make_ndarray(e.tensor_proto))) for e in events.Tensors(name)]
        for name in names
    }


def rounded(values):
    return {name: [(step, round(v, 6)) for step, v in rows] for name, rows in values.items()}


def test_tensorboard_has_each_value_once(make_run):
    run = make_run("tensorboard")
    run.log_eval(0, "before", {"success": 0.25, "seconds": 2})
    with tracked(run, pytest.fail):
        fill(run, 1, 3)
    with tracked(run, pytest.fail):  # a resumed run, which repeats step 3
        fill(run, 3, 4)
        run.log_eval(4, "after", {"success": 0.75})
    values = rounded(read_tensorboard(run))
    assert values["success/mean"] == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4)]
    assert values["loss/policy"] == [(k, -k) for k in (1, 2, 3, 4)]
    assert values["eval/success"] == [(0, 0.25), (4, 0.75)]
    assert "note" not in values and "time" not in values


def test_mlflow_has_the_values_and_the_recipe(make_run, places):
    run = make_run("mlflow")
    with tracked(run, pytest.fail):
        fill(run, 1, 2)
    with tracked(run, pytest.fail):
        fill(run, 3, 3)
    import mlflow

    client = mlflow.MlflowClient()
    (experiment,) = [e for e in client.search_experiments() if e.name == "gem-core"]
    (stored,) = client.search_runs([experiment.experiment_id])
    history = client.get_metric_history(stored.info.run_id, "success/mean")
    assert [(m.step, m.value) for m in history] == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert stored.data.params["algorithm.estimator"] == "rebn"
    assert stored.data.params["trainer"] == "trl"


def test_trackio_has_the_values(make_run, places):
    run = make_run("trackio")
    with tracked(run, pytest.fail):
        fill(run, 1, 3)
    (database,) = (places / "trackio").glob("gem-core*.db")
    with sqlite3.connect(database) as connection:
        rows = connection.execute("select step, metrics from metrics order by step").fetchall()
    assert [(step, json.loads(row)["success/mean"]) for step, row in rows] == [
        (1, 0.1),
        (2, 0.2),
        (3, 0.3),
    ]


def test_wandb_continues_one_run(make_run, places):
    run = make_run("wandb")
    with tracked(run, pytest.fail):
        fill(run, 1, 2)
    first = json.loads((run.path / STATE).read_text())["wandb"]
    with tracked(run, pytest.fail):
        fill(run, 3, 3)
    second = json.loads((run.path / STATE).read_text())["wandb"]
    assert first["id"] == second["id"] and (first["step"], second["step"]) == (2, 3)
    files = sorted((run.path / "wandb").glob(f"offline-run-*-{first['id']}/*.wandb"))
    content = b"".join(file.read_bytes() for file in files)
    assert b"success/mean" in content and b"algorithm.estimator" in content


def test_a_finished_run_is_sent_by_the_command(make_run, capsys):
    run = make_run()
    fill(run, 1, 2)
    assert main(["track", str(run.path), "--to", "tensorboard"]) == 0
    assert main(["track", str(run.path), "--to", "tensorboard"]) == 0
    assert rounded(read_tensorboard(run))["success/mean"] == [(1, 0.1), (2, 0.2)]
    assert main(["track", str(run.path)]) == 2
    assert "names no tracker" in capsys.readouterr().err
    assert main(["track", str(run.path), "--to", "tensorbord"]) == 2
    assert "Did you mean 'tensorboard'" in capsys.readouterr().err


class Breaking:
    """A tracker whose server goes away in the middle."""

    id = "b"
    received: list = []  # noqa: RUF012
    broken = True

    def __init__(self, facts: RunFacts) -> None:
        assert facts.project == "gem-core" and facts.params["seed"] == 0

    def log(self, step, metrics):
        if self.broken and step == 2:
            raise OSError("gone")
        self.received.append(step)

    def close(self):
        pass


def test_an_error_of_a_tracker_is_named_and_the_rest_is_sent_later(make_run, monkeypatch):
    monkeypatch.setitem(TRACKERS, "tensorboard", Breaking)
    run = make_run("tensorboard")
    lines = []
    with tracked(run, lines.append):
        fill(run, 1, 3)
    assert len(lines) == 1 and "OSError: gone" in lines[0] and "gem-core track" in lines[0]
    assert Breaking.received == [1]
    monkeypatch.setattr(Breaking, "broken", False)
    assert send(run, ["tensorboard"], "gem-core", pytest.fail)
    assert Breaking.received == [1, 2, 3]


def test_what_is_missing_or_unknown_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    with pytest.raises(MissingDependencyError, match="pip install wandb"):
        require_trackers(["wandb"])
    with pytest.raises(RecipeError, match=r"track\.to"):
        load_recipe("guess-the-number-easy", "tiny", ["track.to=['neptune']"])
