"""``recipes/verl/train.py`` gives verl what ``gem-core train`` gives it.

``tests/contract/test_repeatable.py`` trains with both.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import load_recipe
from gem_verl.config import recipe_settings, translate
from gem_verl.key_table import TABLE
from gem_verl.launch import run_settings

SCRIPT = Path(__file__).parents[3] / "recipes" / "verl" / "train.py"


@pytest.fixture(scope="module")
def script():
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("verl_train_script", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("resume", [False, True])
def test_it_sets_what_the_launcher_sets(script, tiny, tmp_path, resume):
    recipe = tiny("algorithm.options={per_env=true}")
    run = RunDir.create(tmp_path / "run", recipe, "verl")
    expected = {**TABLE.fixed, **recipe_settings(recipe), **run_settings(recipe, run, resume)}
    assert script.settings(recipe, run, resume) == expected


def test_it_prints_verls_command_line(script, tiny, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["train.py", "--print", "--set", "seed=7"])
    script.main()
    first, *arguments = capsys.readouterr().out.splitlines()
    assert first == "python -m verl.trainer.main_ppo \\"
    recipe = load_recipe("guess-the-number-easy", "tiny", ["seed=7"])
    assert {line.removesuffix(" \\")[1:] for line in arguments} == set(translate(recipe))
