"""What a run's environments are made from: asked for, recorded, the same in every process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import datasets
import pytest

import gem_core
from gem_core.env.spec import EnvSpec
from gem_core.envs import _data_source
from gem_core.errors import DataError, RecipeError
from gem_core.results.data import data_lines, environments_of
from gem_core.runs.directory.run_dir import RUN_VARIABLE, RunDir
from gem_core.runs.environments import data as run_data
from gem_core.runs.environments.data import belonging_to, make_for_run
from gem_core.runs.environments.description import describe_environments, in_run
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.splits import env_key
from gem_core.runs.task_overlap import task_overlap
from gem_core.runs.tasks import MachineFactory

DATA_IDS = ("math:GSM8K", "qa:HotpotQA", "code:PrimeIntellect15k", "logic:RuleTaker-d2")
GUESS = "game:GuessTheNumber-v0-easy"
SAMPLE = "env.0.kwargs.dataset=sample"
ROWS = [{"problem": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(30)]


def recipe_of(*env_ids, overrides=()):
    table = ", ".join(f"{{id='{env_id}'}}" for env_id in env_ids)
    small = ("train.steps=1", "batch.episodes=4", "eval.episodes=6")
    return load_recipe("guess-the-number-easy", "tiny", [f"env=[{table}]", *small, *overrides])


@pytest.fixture
def fresh(monkeypatch):
    """A process that has loaded no data yet."""

    def forget():
        monkeypatch.setattr(_data_source, "_tables", {})

    forget()
    return forget


@pytest.fixture
def rows_file(tmp_path):
    """``rows_file(rows)`` replaces the file; a process that has the old one open keeps it."""
    path = tmp_path / "rows.jsonl"

    def write(rows=ROWS):
        new = tmp_path / "new.jsonl"
        new.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.replace(new, path)
        return path

    write()
    return write


@pytest.fixture
def file_run(rows_file, tmp_path):
    """A run on a local file, on which nothing is recorded yet."""
    recipe = recipe_of("qa:HotpotQA", overrides=[f"env.0.kwargs.dataset={rows_file()}"])
    return RunDir.create(tmp_path / "run", recipe, "trl")


# -- nothing is replaced by a sample ---------------------------------------------------------------


@pytest.mark.parametrize(
    "part_of_a_run",
    [
        describe_environments,
        task_overlap,
        lambda recipe: MachineFactory(recipe).train(0),
        lambda recipe: MachineFactory(recipe).evaluation(0),
        lambda recipe: make_for_run(recipe.env[0], env_key(recipe, "train", 0)),
    ],
)
def test_every_part_of_a_run_refuses_what_is_not_there(part_of_a_run):
    for env_id in DATA_IDS:
        with pytest.raises(DataError) as raised:
            part_of_a_run(recipe_of(env_id))
        message = str(raised.value)
        assert "load_dataset(" in message and "local file" in message
        assert f"--set '{SAMPLE}'" in message


@pytest.mark.parametrize("env_id", DATA_IDS)
def test_the_override_in_the_message_works(env_id):
    recipe = recipe_of(env_id, overrides=[SAMPLE])
    machine = MachineFactory(recipe).train(0)
    assert machine.env.unwrapped.is_sample
    rows = describe_environments(recipe)
    assert all(row["sample"] and row["data_revision"].startswith("sample-") for row in rows)


def test_the_message_names_the_table_of_the_recipe():
    with pytest.raises(DataError, match=r"--set 'env\.1\.kwargs\.dataset=sample'"):
        describe_environments(recipe_of(GUESS, "math:GSM8K"))
    evaluated = recipe_of(GUESS, overrides=["eval.env=[{id='eval:MATH500'}]"])
    with pytest.raises(DataError, match=r"--set 'eval\.env\.0\.kwargs\.dataset=sample'"):
        describe_environments(evaluated)
    not_played = recipe_of(
        GUESS, overrides=["eval.env=[{id='eval:MATH500'}]", "eval.episodes=0", "eval.every=0"]
    )
    assert [row["id"] for row in describe_environments(not_played)] == [GUESS]


def test_a_missing_package_is_refused_in_the_same_way(monkeypatch, fresh):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"pip install 'gem-core\[data\]'.*dataset=sample"):
        describe_environments(recipe_of("math:GSM8K"))


def test_strictness_is_not_a_parameter_of_the_task(rows_file):
    recipe = recipe_of("qa:HotpotQA", overrides=[f"env.0.kwargs.dataset={rows_file()}"])
    made = make_for_run(recipe.env[0], "env.0")
    outside = gem_core.make("qa:HotpotQA", dataset=str(rows_file()))
    assert made.spec == outside.spec


def test_images_are_refused_unless_they_are_dropped_on_purpose():
    with pytest.raises(DataError, match=r"text only.*--set 'env\.0\.kwargs\.images=drop'"):
        describe_environments(recipe_of("math:Geometry3K", overrides=[SAMPLE]))
    dropped = recipe_of("math:Geometry3K", overrides=[SAMPLE, "env.0.kwargs.images=drop"])
    assert describe_environments(dropped)[0]["items"] == 12
    assert "<image>" not in MachineFactory(dropped).train(0).start()


def test_parameters_that_an_environment_refuses_are_named():
    recipe = recipe_of("game:Sudoku-v0-easy", overrides=["env.0.kwargs.scale=5"])
    with pytest.raises(RecipeError, match=r"env\.0\.kwargs: game:Sudoku-v0-easy"):
        describe_environments(recipe)


# -- the record ------------------------------------------------------------------------------------


def test_the_record_is_a_list_by_position_with_what_was_made(rows_file, tmp_path):
    recipe = recipe_of(
        "qa:HotpotQA",
        GUESS,
        "qa:HotpotQA",
        overrides=[f"env.0.kwargs.dataset={rows_file()}", "env.2.kwargs.dataset=sample"],
    )
    run = RunDir.create(tmp_path / "run", recipe, "trl")
    with in_run(run):
        pass
    rows = run.info["environments"]
    trained = [row for row in rows if "train" in row["used_in"]]
    assert [row["id"] for row in trained] == [config.id for config in recipe.env]
    file, game, sample = trained
    assert file["data_revision"].startswith("sha256-") and not file["sample"]
    assert (file["items"], sample["items"], game["items"]) == (30, 32, None)
    assert sample["sample"] and sample["data_revision"].startswith("sample-")
    assert game["data_revision"] is game["revision"] is None
    assert game["used_in"] == ["train", "eval"]
    assert len({row["fingerprint"] for row in rows}) == len(rows) == 5  # both data sets, two parts
    unmade = EnvSpec(file["id"], gem_core.spec(file["id"]).entry_point, file["kwargs"])
    assert file["fingerprint"] != unmade.fingerprint()  # it is that of what was made


def test_the_record_makes_the_sample_visible(rows_file):
    overrides = [f"env.0.kwargs.dataset={rows_file()}", "env.1.kwargs.dataset=sample"]
    rows = describe_environments(recipe_of("qa:HotpotQA", "math:GSM8K", overrides=overrides))
    file, sample, *_ = data_lines(rows)
    assert "SAMPLE" not in file and "part 'train' of 30 items, sha256-" in file
    assert sample.endswith("built-in SAMPLE") and sample.startswith("math:GSM8K (train): ")


def test_runs_of_older_versions_are_read(tmp_path):
    run = RunDir.create(tmp_path / "run", recipe_of(GUESS), "trl")
    assert environments_of(run) == []
    run.finish({"environments": {GUESS: "00c0ffee00c0ffee"}})
    assert environments_of(run) == [f"{GUESS}: 00c0ffee00c0ffee, data not recorded"]
    with belonging_to(run):  # such a run has no record to agree with
        assert MachineFactory(run.recipe).train(0).env.unwrapped is not None


# -- all processes agree ---------------------------------------------------------------------------

WORKER = """
from gem_core.runs.directory.run_dir import current_run
from gem_core.runs.tasks import MachineFactory
machines = MachineFactory(current_run().recipe)
print([machines.train(index).env.spec.data_revision for index in range(4)])
"""


def work() -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", WORKER], capture_output=True, text=True)


def test_a_process_with_other_data_refuses_to_play(file_run, rows_file):
    with in_run(file_run):
        same = work()
        assert same.returncode == 0, same.stderr
        (recorded,) = {row["data_revision"] for row in file_run.info["environments"]}
        assert same.stdout.split("'")[1::2] == [recorded] * 4
        rows_file(ROWS[:20])
        other = work()
    assert other.returncode != 0
    assert "DataError: qa:HotpotQA: " in other.stderr and "put the same data" in other.stderr
    assert recorded in other.stderr
    assert work().returncode != 0  # outside of the block a process belongs to no run


def test_a_process_with_another_version_of_the_code_refuses_too(file_run, monkeypatch):
    with in_run(file_run):
        run_data._data_of.cache_clear()
        monkeypatch.setattr(gem_core.spec("qa:HotpotQA").load(), "version", 99)
        with pytest.raises(DataError, match="another version of its code"):
            MachineFactory(file_run.recipe).train(0)


def test_it_is_compared_once_per_process_and_environment(file_run, monkeypatch):
    count = []
    fingerprint = EnvSpec.fingerprint
    with in_run(file_run):
        monkeypatch.setattr(
            EnvSpec, "fingerprint", lambda spec: (count.append(spec.id), fingerprint(spec))[1]
        )
        machines = MachineFactory(file_run.recipe)
        for index in range(20):
            machines.train(index)
        assert len(count) == 1
        machines.evaluation(0)  # the other part of the data
        machines.evaluation(1)
        assert len(count) == 2


def test_all_that_a_run_plays_is_in_its_record(tmp_path):
    recipe = recipe_of(
        "math:GSM8K",
        GUESS,
        overrides=[SAMPLE, "eval.env=[{id='eval:MATH500', kwargs={dataset='sample'}}]"],
    )
    rows = describe_environments(recipe)
    recorded = {(row["id"], json.dumps(row["kwargs"], sort_keys=True)) for row in rows}
    machines = MachineFactory(recipe)
    for configs in machines.envs.values():
        for config in configs:
            assert (config.id, json.dumps(config.kwargs, sort_keys=True)) in recorded


def test_the_variable_is_restored(file_run, monkeypatch):
    monkeypatch.delenv(RUN_VARIABLE, raising=False)
    with in_run(file_run):
        assert os.environ[RUN_VARIABLE] == str(file_run.path.resolve())
        with belonging_to(RunDir("elsewhere")):
            assert os.environ[RUN_VARIABLE].endswith("elsewhere")
        assert os.environ[RUN_VARIABLE] == str(file_run.path.resolve())
    assert RUN_VARIABLE not in os.environ


def test_a_resumed_run_needs_the_data_that_it_began_with(file_run, rows_file, fresh):
    with in_run(file_run):
        pass
    fresh()
    before = (file_run.path / "run.json").read_bytes()
    with in_run(file_run):
        pass
    assert (file_run.path / "run.json").read_bytes() == before
    rows_file(ROWS[:20])
    fresh()
    with pytest.raises(DataError, match="start a new run"), in_run(file_run):
        pass
    assert (file_run.path / "run.json").read_bytes() == before


def test_every_process_loads_the_commit_that_the_first_resolved(tmp_path, fresh, monkeypatch):
    old, new = "1" * 40, "2" * 40
    newest = [old]
    loaded = []

    def load_dataset(name, subset, *, revision):
        loaded.append(revision)
        commit = revision or newest[0]
        made = datasets.Dataset.from_list([{**row, "answer": commit} for row in ROWS])
        made.info.download_checksums = {f"hf://datasets/{name}@{commit}/x": {}}
        return datasets.DatasetDict({"train": made})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    run = RunDir.create(tmp_path / "run", recipe_of("qa:HotpotQA"), "trl")
    with in_run(run):
        (revision,) = {row["revision"] for row in run.info["environments"]}
        assert revision == old
        newest[0] = new  # somebody pushes to the Hub while the workers start
        fresh()
        run_data._data_of.cache_clear()
        env = MachineFactory(run.recipe).train(0).env
        assert env.spec.data_revision.endswith(old)
    fresh()
    with in_run(run):  # and when it is resumed
        assert MachineFactory(run.recipe).train(0).env.spec.data_revision.endswith(old)
    assert loaded == [None, old, old]
    fresh()
    assert make_for_run(run.recipe.env[0], "env.0").spec.data_revision.endswith(new)


# -- experiments and reports -----------------------------------------------------------------------


def test_an_experiment_without_its_data_leaves_no_run(tmp_path, monkeypatch):
    from gem_core.training.experiment import run_experiment

    monkeypatch.setattr("gem_core.runs.trainers.require", lambda *_: None)
    with pytest.raises(DataError, match="dataset=sample"):
        run_experiment(recipe_of("math:GSM8K"), "trl", tmp_path / "run")
    assert not RunDir(tmp_path / "run").exists


def test_wiki_articles_from_a_file_are_part_of_the_task(tmp_path):
    path = Path(tmp_path / "wiki.txt")
    path.write_text("A | To [[B]].\nB | To [[C]].\nC | To [[A]].\n")
    overrides = [f"env.0.kwargs.path={path}"]
    (row,) = describe_environments(recipe_of("game:WikiGame-v0-easy", overrides=overrides))
    assert row["data_revision"].startswith("sha256-") and not row["sample"]
    (shipped,) = describe_environments(recipe_of("game:WikiGame-v0-easy"))
    assert shipped["sample"] and shipped["data_revision"] is None
