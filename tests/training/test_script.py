"""The command line that the scripts in recipes/ share."""

from __future__ import annotations

import pytest

from gem_core.errors import GemError
from gem_core.runs.recipe.load import load_recipe
from gem_core.training.script import read_command_line

DOCUMENTATION = "Train a recipe.\n\nMore about it.\n"


def test_the_recipe_is_that_of_the_options():
    words = ["--run", "runs/x", "--baseline", "letter-counting", "--set", "seed=7", "--resume"]
    call = read_command_line(DOCUMENTATION, words)
    assert call.recipe == load_recipe("letter-counting", "tiny", ["seed=7"])
    assert (call.run, call.resume, call.show) == ("runs/x", True, False)


def test_training_needs_a_directory_and_showing_does_not(capsys):
    with pytest.raises(SystemExit):
        read_command_line(DOCUMENTATION, [])
    assert "--run is needed to train" in capsys.readouterr().err
    call = read_command_line(DOCUMENTATION, ["--print"], shows="the overrides")
    assert call.show and not call.run


def test_the_help_is_the_first_line_and_what_is_shown(capsys):
    with pytest.raises(SystemExit):
        read_command_line(DOCUMENTATION, ["--help"], shows="the overrides")
    said = capsys.readouterr().out
    assert "Train a recipe." in said and "More" not in said and "show the overrides" in said


def test_a_script_without_overrides_to_show_has_no_such_option(capsys):
    with pytest.raises(SystemExit):
        read_command_line(DOCUMENTATION, ["--print"])
    assert "--print" in capsys.readouterr().err


def test_a_baseline_that_is_not_there_is_refused():
    with pytest.raises(GemError, match="letter-counting"):
        read_command_line(DOCUMENTATION, ["--run", "x", "--baseline", "leter-counting"])
