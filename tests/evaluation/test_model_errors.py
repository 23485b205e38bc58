"""A model that cannot be found or read is one line, and leaves no directory behind."""

from __future__ import annotations

import shutil

import pytest

from gem_core.cli import main
from gem_core.errors import RecipeError
from gem_core.policies.models.weights import require_weights
from gem_core.runs.recipe.load import override
from gem_core.training.tiny.cache import model_source

GAME = "game:GuessTheNumber-v0-easy"
CASES = {
    "/no/such/folder": "'/no/such/folder' does not exist",
    "~/model": "~ is not replaced here",
    "a/b/c": "'a/b/c' does not exist",
    "file": "'file' is not a directory",
    "empty": "has no model (no config.json)",
    "run": "is a run directory: name its model, run/model",
    "list": "is not the JSON of a model",
    "untyped": "The model 'untyped' cannot be read: Unrecognized model",
    "no-tokenizer": "The model 'no-tokenizer' cannot be read: ",
    "cut": "The model 'cut' cannot be read: ",
    "nobody/no-such-model": "The model 'nobody/no-such-model' cannot be read: ",
}


@pytest.fixture
def folders(model_dir, tmp_path, monkeypatch):
    """The current directory, with one model that is damaged in each way."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in ("empty", "run", "list", "untyped"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "run" / "recipe.json").write_text("{}")
    (tmp_path / "list" / "config.json").write_text("[]")
    (tmp_path / "untyped" / "config.json").write_text("{}")
    for name in ("no-tokenizer", "cut"):
        shutil.copytree(model_dir, tmp_path / name)
    for file in (tmp_path / "no-tokenizer").glob("*token*"):
        file.unlink()
    weights = tmp_path / "cut" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    return tmp_path


@pytest.mark.parametrize(("model", "message"), CASES.items(), ids=str)
def test_a_model_that_cannot_be_read(folders, capsys, model, message):
    with pytest.raises(RecipeError) as raised:
        require_weights(model)
    assert message in str(raised.value) and "\n" not in str(raised.value)
    out = folders / "out"
    code = main(["eval", GAME, "--model", model, "--tasks", "1", "--out", str(out)])
    error = capsys.readouterr().err.splitlines()
    # Libraries that were imported before the command may have drawn their bars.
    assert code == 2 and message in error[-1]
    assert [line for line in error if "Traceback" in line or line.startswith("gem-core: ")] == [
        error[-1]
    ]
    assert not out.exists()


def test_a_revision_that_cannot_be_had(folders, recipe):
    asked = override(recipe, ["model.path=nobody/no-such-model", "model.revision=abc"])
    with pytest.raises(RecipeError, match="'nobody/no-such-model' cannot be read"):
        model_source(asked)


def test_the_chat_template_is_rendered(model_dir, capsys):
    code = main(["show", GAME, "--model", model_dir, "--episodes", "1"])
    out = capsys.readouterr().out
    assert code == 0 and "template chat ---" in out
    assert "You are playing Guess The Number" in out and "Without the chat template" not in out
