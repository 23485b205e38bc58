"""Recipes in YAML: the same as in TOML, with what versions of YAML read differently refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import tomllib

yaml = pytest.importorskip("yaml", reason="the extra yaml")

from gem_core.cli import main  # noqa: E402
from gem_core.errors import RecipeError  # noqa: E402
from gem_core.runs.recipe.files import recipe_dirs  # noqa: E402
from gem_core.runs.recipe.load import load_recipe  # noqa: E402
from gem_yaml import read_yaml  # noqa: E402

GUESS = "name: mine\nenv:\n  - id: game:GuessTheNumber-v0-easy\n"
FILES = sorted(
    path
    for kind in ("baselines", "profiles", "bases")
    for folder in recipe_dirs(kind)
    for path in folder.glob("*.toml")
)


def write(folder: Path, text: str, name: str = "mine.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def message(folder: Path, text: str) -> str:
    with pytest.raises(RecipeError) as raised:
        load_recipe(write(folder, text))
    return str(raised.value)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_tables_of_every_shipped_file_are_the_same(path: Path) -> None:
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    assert read_yaml(yaml.safe_dump(tables)) == tables
    assert read_yaml(yaml.safe_dump(tables, default_flow_style=True, allow_unicode=True)) == tables


def test_a_baseline_and_a_profile_in_yaml_are_the_recipe_of_toml(tmp_path: Path) -> None:
    folder = recipe_dirs("baselines")[-1].parent
    dumped = {}
    for kind, name in (("baselines", "guess-the-number-easy"), ("profiles", "tiny")):
        tables = tomllib.loads((folder / kind / f"{name}.toml").read_text(encoding="utf-8"))
        dumped[kind] = write(tmp_path, yaml.safe_dump(tables), f"{name}.yml")
    changes = ["seed=4", "env.0.max_turns=3"]
    wanted = load_recipe("guess-the-number-easy", "tiny", changes)
    assert load_recipe(dumped["baselines"], dumped["profiles"], changes) == wanted
    learned = load_recipe("guess-the-number-easy", "learn")
    assert load_recipe(dumped["baselines"], "learn") == learned


@pytest.mark.parametrize(
    ("toml", "lines"),
    [
        ("[train]\nstpes = 2", "train:\n  stpes: 2"),
        ('[train]\nsteps = "many"', "train: {steps: many}"),
        ("[algorithm]\nlr = -1.0", "algorithm: {lr: -1.0}"),
        ('[algorithm]\nestimator = "rebm"', "algorithm: {estimator: rebm}"),
        ('[context]\ntemplate = "qwen4_game"', "context: {template: qwen4_game}"),
        ("[trainer.trll]\na = 1", "trainer: {trll: {a: 1}}"),
        ('[trainer.trl]\nhub_token = "hf_x"', "trainer: {trl: {hub_token: hf_x}}"),
        ("[workers]\nnumber = 3", "workers: {number: 3}"),
        ('[algorithm]\nestimator = "my.module:f"', 'algorithm: {estimator: "my.module:f"}'),
        ('base = "gamse"', "base: gamse"),
    ],
)
def test_the_refusals_are_those_of_toml(tmp_path: Path, toml: str, lines: str) -> None:
    head, table = ("", toml) if toml.startswith("[") else (toml, "")
    env = 'name = "mine"\n[[env]]\nid = "game:GuessTheNumber-v0-easy"\n'
    path = tmp_path / "mine.toml"
    path.write_text(f"{head}\n{env}{table}\n")
    with pytest.raises(Exception) as wanted:  # a TrustError is no RecipeError
        load_recipe(path)
    with pytest.raises(type(wanted.value)) as raised:
        load_recipe(write(tmp_path, f"{GUESS}{lines}\n"))
    assert str(raised.value) == str(wanted.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("False", False),
        ("12", 12),
        ("-3", -3),
        ("0x1F", 31),
        ("0.001", 0.001),
        ("1.0e-3", 0.001),
        ("-.5", -0.5),
        ("1.", 1.0),
        (".inf", math.inf),
        ("-.inf", -math.inf),
        ('"on"', "on"),
        ("'1e-3'", "1e-3"),
        ("'010'", "010"),
        ("rebn", "rebn"),
        ("game:Sudoku-v0-easy", "game:Sudoku-v0-easy"),
        ("8x80", "8x80"),
        ("2026-q1", "2026-q1"),
        ("a_b", "a_b"),
        ("bad_", "bad_"),
        ("e_1", "e_1"),
        ("|\n  a\n  b\n", "a\nb\n"),
        ("[1, [a, {b: 2.5}]]", [1, ["a", {"b": 2.5}]]),
    ],
)
def test_what_has_one_meaning_is_read(text: str, value: Any) -> None:
    found = read_yaml(f"a: {text}")["a"]
    assert found == value and type(found) is type(value)


TRAPS = [
    *((word, "write true or false") for word in ("on", "Off", "yes", "NO", "y", "N")),
    ("1e-3", 'write 1.0e-3 for the number, or "1e-3" for the text'),
    ("1E6", "write 1.0e+6 for the number"),
    ("2.5e6", "write 2.5e+6 for the number"),
    ("-1e-06", "write -1.0e-06 for the number"),
    ("010", "without the leading 0"),
    ("-017", "without the leading 0"),
    ("0o17", "without the leading 0"),
    ("089", "without the leading 0"),
    ("1_000", "in plain decimal digits"),
    ("0b11", "in plain decimal digits"),
    ("-0x1F", "in plain decimal digits"),
    ("1_0.5", "in plain decimal digits"),
    ("0x_1F", "in plain decimal digits"),
    ("1:30", '"1:30", with quotes'),
    ("2026-11-26", '"2026-11-26", with quotes'),
    ("2026-11-26 10:00:00", "with quotes"),
    ("=", "with quotes"),
]


@pytest.mark.parametrize(("text", "advice"), TRAPS)
def test_what_the_versions_of_yaml_read_differently_is_refused(
    tmp_path: Path, text: str, advice: str
) -> None:
    said = message(tmp_path, f"{GUESS}train:\n  steps: {text}\n")
    place = f"{tmp_path / 'mine.yaml'}: line 5: train.steps: {text} "
    assert said.startswith(f"{place}is read differently by the versions of YAML: write ")
    assert advice in said


def meant_by_yaml_1_1(text: str) -> Any:
    return yaml.safe_load(f"a: {text}")["a"]


@pytest.mark.parametrize("text", [text for text, _ in TRAPS if text not in ("y", "N", "=")])
def test_each_of_them_is_one_indeed(text: str) -> None:
    """PyYAML (1.1) has another value than 1.2 has: the number that Python reads, or the text."""
    try:
        newer: Any = int(text, 8) if text.startswith("0o") else float(text.replace("_", "x"))
    except ValueError:
        newer = text
    older = meant_by_yaml_1_1(text)
    assert (type(older), older) != (type(newer), newer)
    assert not (isinstance(older, int | float) and older is not True and older == newer and older)


@pytest.mark.parametrize("text", ["", "~", "null", "NULL"])
def test_a_value_that_is_missing_is_refused(tmp_path: Path, text: str) -> None:
    said = message(tmp_path, f"{GUESS}limits:\n  max_turns: {text}\n")
    assert "line 5: limits.max_turns: has no value: leave the key out" in said


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ("seed: 1\nseed: 2", "line 5: seed stands there twice"),
        ("train: {steps: 1, steps: 2}", "line 4: train.steps stands there twice"),
        ("train:\n  steps: 1\ntrain:\n  steps: 2", "line 6: train stands there twice"),
        ("train.steps: 3", "line 4: train.steps: YAML has no dotted keys: write steps in the"),
        ("train: &a {steps: 1}", "line 4: &a: anchors and aliases are not read"),
        ("train: *a", "line 4: *a: anchors and aliases are not read"),
        ("train:\n  <<: {steps: 1}", "line 5: << is no key"),
        ("? [a]\n: 1", "line 4: a key is a text, not a list or a table"),
        ("seed: !!int 3", "line 4: the tag !!int is not read"),
        ("seed: !!python/object/apply:os.system [ls]", "line 4: the tag !!python/object"),
        ("--- {}", "line 4: a second document"),
        ("train: [1", "not valid YAML: line "),
        ("\tseed: 1", "not valid YAML: line 4: "),
        ("seed: \x07", "not valid YAML: "),
        ("seed: " + "[" * 5000, "not valid YAML: it is nested too deeply"),
        (f"seed: {'9' * 5000}", "line 4: seed: has a number with too many digits"),
    ],
)
def test_what_toml_has_not_is_refused(tmp_path: Path, lines: str, wanted: str) -> None:
    said = message(tmp_path, f"{GUESS}{lines}\n")
    assert said.startswith(f"{tmp_path / 'mine.yaml'}: ") and wanted in said
    assert "\n" not in said


def test_no_object_is_made_of_a_file(tmp_path: Path) -> None:
    target = tmp_path / "made"
    text = f"{GUESS}seed: !!python/object/apply:pathlib.Path.touch [{target}]\n"
    assert "is not read" in message(tmp_path, text)
    assert not target.exists()


def test_keys_are_texts_as_they_are_written() -> None:
    text = 'on: 1\n0: {1e-3: 2}\n"null": 3\nsources: {algorithm.lr: here}\n'
    assert read_yaml(text) == {
        "on": 1,
        "0": {"1e-3": 2},
        "null": 3,
        "sources": {"algorithm.lr": "here"},
    }


def test_a_file_without_keys_is_as_an_empty_one_of_toml(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("# nothing\n")
    with pytest.raises(RecipeError) as wanted:
        load_recipe(tmp_path / "mine.toml")
    assert message(tmp_path, "# nothing\n") == str(wanted.value)
    assert "a recipe is a table of keys" in message(tmp_path, "- name\n")


def test_commands_take_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, f"{GUESS}seed: 7\n")
    assert main(["show", str(path), "--episodes", "1"]) == 0
    assert "seed = 7" in capsys.readouterr().out
    out = tmp_path / "out"
    words = ["eval", str(path), "--player", "expert", "--episodes", "2", "--out", str(out)]
    assert main(words) == 0
    assert (out / "result.json").exists()
