"""A run never leaves its folder: names, links, and what --overwrite deletes."""

from __future__ import annotations

import json
import shutil

import pytest

from gem_compare.grid import make_grid
from gem_compare.runner import GridPlan, run_grid
from gem_core.cli import main
from gem_core.errors import GemError, RecipeError, RunError
from gem_core.runs.directory.lock import exclusive
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import load_recipe

GAME = "game:GuessTheNumber-v0-easy"
NAMES = [
    "../../x",
    "a/b",
    "..",
    ".",
    ".hidden",
    "",
    "  ",
    "a\\b",
    "a\nb",
    "a\x00b",
    "x" * 300,
    "/x",
]


def recipe(*overrides):
    return load_recipe("guess-the-number-easy", "tiny", overrides)


def everything(folder):
    return sorted(str(path) for path in folder.rglob("*"))


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_leads_elsewhere_is_refused(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    value = f"name={json.dumps(name)}"
    with pytest.raises(RecipeError, match=r"^name: .*(a plain name|must not be empty)") as raised:
        recipe(value)
    assert "\n" not in str(raised.value)
    file = tmp_path / "r.toml"
    file.write_text(f"{value}\n[[env]]\nid = {GAME!r}\n")
    for command in (
        ["train", str(file), "--trainer", "trl", "--overwrite"],
        ["train", "guess-the-number-easy", "--trainer", "trl", "--set", value],
        ["eval", str(file), "--player", "expert", "--out", str(tmp_path / "out")],
    ):
        assert main(command) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    assert everything(tmp_path) == [str(file)]


def test_a_baseline_file_of_which_the_name_leads_elsewhere_is_refused(tmp_path, monkeypatch):
    """Its name without ``.toml`` is a folder of the comparison."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "...toml").write_text(f'name = "a"\n[[env]]\nid = "{GAME}"\n')
    with pytest.raises(RecipeError, match="baseline"):
        make_grid(["...toml"], ["trl"], ["rebn"], [0])


def test_the_name_of_an_evaluation_of_ids_is_a_plain_one(tmp_path):
    assert main(["eval", GAME, "--player", "expert", "--tasks", "1", "--out", str(tmp_path)]) == 0
    assert RunDir(tmp_path).recipe.name == GAME


@pytest.mark.parametrize("kind", ["a cake", "no run.json", "damaged", "another run.json"])
def test_overwrite_deletes_nothing_but_runs(tmp_path, kind):
    folder = tmp_path / "kitchen"
    RunDir.create(folder, recipe(), "trl")
    if kind == "a cake":
        (folder / "recipe.json").write_text('{"name": "cake", "flour": 500}')
    elif kind == "no run.json":
        (folder / "run.json").unlink()
    elif kind == "damaged":
        (folder / "recipe.json").write_text("{")
    else:
        (folder / "run.json").write_text('{"scripts": {}}')
    (folder / "photos").mkdir()
    (folder / "photos" / "1.png").write_bytes(b"x")
    before = everything(tmp_path)
    with pytest.raises(RunError, match="is not deleted"):
        RunDir.create(folder, recipe(), "trl", "overwrite")
    command = ["eval", GAME, "--player", "expert", "--out", str(folder), "--overwrite"]
    assert main(command) == 2
    assert [path for path in everything(tmp_path) if not path.endswith("run.lock")] == before


def test_a_stale_cell_that_is_no_run_is_not_deleted(tmp_path):
    (cell,) = make_grid(["guess-the-number-easy"], ["trl"], ["rebn"], [0])
    plan = GridPlan(tmp_path, retry_stale=True)
    folder = plan.directory(cell)
    folder.mkdir(parents=True)
    (folder / "recipe.json").write_text('{"name": "cake"}')
    (folder / "photo").write_text("x")
    with pytest.raises(RunError, match="is not deleted"):
        run_grid([cell], plan)
    assert (folder / "photo").exists()


def test_overwrite_replaces_a_run_and_follows_no_link(tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "data").write_text("x")
    run = RunDir.create(tmp_path / "run", recipe(), "trl")
    run.log(1, {"x": 1.0})
    (run.path / "checkpoints").symlink_to(precious)
    (run.path / "model").mkdir()
    (run.path / "model" / "link").symlink_to(precious)
    (run.path / "metrics").symlink_to(precious / "data")
    again = RunDir.create(run.path, recipe(), "trl", "overwrite")
    assert again.metrics() == []
    assert sorted(p.name for p in run.path.iterdir()) == ["recipe.json", "run.json"]
    assert (precious / "data").read_text() == "x"


def test_a_new_run_needs_a_folder_of_its_own(tmp_path):
    """Else --overwrite would delete later what was there before the run."""
    (tmp_path / "src").mkdir()
    with pytest.raises(RunError, match=r"\(src\): a run needs a folder of its own"):
        RunDir.create(tmp_path, recipe(), "trl")
    assert [path.name for path in tmp_path.iterdir()] == ["src"]
    (tmp_path / "src").rmdir()
    (tmp_path / "slurm.out").write_text("")  # what a launcher leaves is no obstacle
    assert RunDir.create(tmp_path, recipe(), "trl").exists


@pytest.mark.parametrize(
    "name", ["metrics.jsonl", "evals.jsonl", "sessions.jsonl", "run.lock", "episodes.jsonl.gz"]
)
def test_a_run_from_elsewhere_writes_through_no_link(tmp_path, name):
    """A resumed run appends to its files; as links they would be files of the user."""
    victim = tmp_path / "victim"
    victim.write_text("")
    run = RunDir.create(tmp_path / "run", recipe(), "trl")
    (run.path / name).symlink_to(victim)
    with pytest.raises(GemError, match="is a link"), exclusive(run.path):
        from gem_core.training.sessions import SessionLog

        again = RunDir.create(run.path, recipe(), "trl", "resume")
        again.log(1, {"x": 1.0})
        again.log_eval(1, "after", {})
        again.log_episodes(1, [])
        SessionLog(again)
    assert victim.read_text() == ""


def test_the_curve_of_a_report_is_not_drawn_through_a_link(tmp_path, capsys):
    """A report of a run from elsewhere would overwrite a file of the user."""
    from tests.view.hostile import RECORDED

    victim = tmp_path / "victim"
    victim.write_text("x")
    run = shutil.copytree(RECORDED, tmp_path / "run")
    (run / "learning-curve.png").symlink_to(victim)
    assert main(["report", str(run)]) == 2
    assert "is a link" in capsys.readouterr().err
    (run / "trackers.json").symlink_to(victim)
    (run / "tensorboard").symlink_to(tmp_path)
    assert main(["track", str(run), "--to", "tensorboard"]) == 2
    assert victim.read_text() == "x"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "victim"]


def test_a_file_that_is_replaced_is_not_written_through_a_link(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("x")
    run = RunDir.create(tmp_path / "run", recipe(), "trl")
    for name in ("result.json", "result.partial"):
        (run.path / name).symlink_to(victim)
    run.finish({"name": "a"})
    assert victim.read_text() == "x"
    assert run.result == {"name": "a"}


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("trainer.trl.hub_token='abcdefghijk'", "trainer.trl.hub_token"),
        ("model.path='https://me:pw@host/m'", "model.path"),
        ("sources={'lr'='see https://me:pw@host/'}", "sources.lr"),
        ("trainer.trl.x=['hf_abcdefghijklmnop']", "trainer.trl.x.0"),
    ],
)
def test_a_recipe_has_no_secret(override, key):
    """It is stored in the run, shown, and sent to trackers, and the trainer has to read it."""
    with pytest.raises(RecipeError, match=f"^{key}: this looks like a secret") as raised:
        recipe(override)
    assert "pw" not in str(raised.value) and "abc" not in str(raised.value)


DAMAGED = {
    "run.json": ['{"trainer": 1}', "[]", "{", '{"trainer": "trl", "versions": []}'],
    "recipe.json": ["{}", "nonsense", '{"name": 1, "env": []}'],
    "result.json": ['{"format": 2}', '{"seconds": 3}', "\0"],
    "metrics.jsonl": [
        '{"step": "1"}\n',
        '{"x": 1}\n',
        '{"step": 1, "success/mean": "x"}\n',
        "[]\n",
    ],
    "evals.jsonl": ['{"step": 1}\n', '{"step": 0, "when": "before", "success/mean": []}\n'],
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_one_line(name, tmp_path, capsys):
    from tests.view.hostile import RECORDED

    for number, text in enumerate(DAMAGED[name]):
        run = shutil.copytree(RECORDED, tmp_path / f"run{number}")
        (run / name).write_text(text)
        assert main(["report", str(run), "--png", str(tmp_path / "a.png")]) == 2, text
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and error.startswith("gem-core: "), error
        if name != "result.json":
            assert main(["track", str(run), "--to", "tensorboard"]) in (1, 2), text
            assert capsys.readouterr().err.count("\n") <= 1
