"""Commands about a class of the user's own: what they print where it is wrong, and its players."""

from __future__ import annotations

import json

import pytest

DOORS = '''
from gem_core.env.interface import Env
from gem_core.envs.players import Player


class Weak(Player):
    def act(self, obs, info):
        return self.answer(1)


class Doors(Env):
    """Open a door."""

    players = {"first-door": Weak}
    fast = True
    answer_format = "tag"
    _state_fields = ()

    def __init__(self, *, doors=3):
        self.doors = doors

    def _reset(self, options):
        return f"Open one of {self.doors} doors: <answer>1</answer>", {}

    def _step(self, action):
        won = action == "<answer>1</answer>"
        return "", float(won), True, False, {"success": won}

    def random_action(self, rng):
        return f"<answer>{rng.randint(1, self.doors)}</answer>"
'''
RECIPE = """
name = "doors"
[[env]]
id = "{module}:Doors"
[context]
template = "{template}"
"""


@pytest.fixture
def module(tmp_path, monkeypatch, request):
    """The name of a module of this folder; each test has another one, as modules are kept."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"doors_of_{request.node.name.partition('[')[0]}"[:60]
    (tmp_path / f"{name}.py").write_text(DOORS)
    return name


def show(gem, tmp_path, module, template, *arguments):
    (tmp_path / "doors.toml").write_text(RECIPE.format(module=module, template=template))
    code, out, err = gem("show", "doors.toml", "--trust", "--episodes", "2", *arguments)
    assert code == 0, err
    return out


@pytest.mark.parametrize("template", ["qwen3_game", "qwen3_general", "code"])
def test_show_warns_of_another_answer_format(gem, tmp_path, module, template):
    out = show(gem, tmp_path, module, template)
    assert f"Warning: The prompt contradicts itself: context.template = {template!r}" in out
    asked = "'fenced'" if template == "code" else "'boxed'"
    assert f"in the format {asked}, and {module}:Doors reads 'tag'" in out


def test_show_does_not_warn_where_the_template_asks_for_nothing(gem, tmp_path, module):
    assert "Warning" not in show(gem, tmp_path, module, "no")
    (shown,) = json.loads(show(gem, tmp_path, module, "no", "--json"))["environments"]
    assert shown["warning"] == ""


def test_show_plays_every_player_of_the_class(gem, tmp_path, module):
    out = show(gem, tmp_path, module, "no")
    assert "first-door  success 1.000" in out
    assert "expert      not available" in out and "random      success" in out


@pytest.mark.parametrize("command", ["check", "play"])
def test_a_module_that_cannot_be_imported_is_one_line(gem, module, command):
    with open(f"{module}.py", "a") as file:
        file.write("\n1 / 0\n")
    code, _, err = gem(command, f"{module}:Doors")
    assert code == 2 and err.count("\n") == 1
    assert (
        f"its module cannot be imported: ZeroDivisionError: division by zero ({module}.py:" in err
    )


@pytest.mark.parametrize("command", ["check", "play"])
def test_a_module_that_is_not_there_is_told_from_a_wrong_id(gem, module, command):
    code, _, err = gem(command, "doorz_of_nobody:Doors")
    assert code == 2 and err.count("\n") == 1
    assert "Unknown environment 'doorz_of_nobody:Doors'" in err and "set PYTHONPATH" in err
    assert "PYTHONPATH" not in gem(command, "game:Guess")[2]


def test_a_parameter_that_the_class_does_not_take(gem, module):
    code, _, err = gem("check", f"{module}:Doors", "--parameters", '{"lamp": 3}')
    assert code == 2 and err.count("\n") == 1
    wanted = f"Unknown keyword argument of {module}:Doors: 'lamp'. It takes: doors."
    assert wanted in err


def test_a_recipe_has_the_same_message(gem, tmp_path, module):
    recipe = tmp_path / "lamp.toml"
    text = RECIPE.format(module=module, template="no").replace(
        "[context]", "kwargs.lamp = 3\n[context]"
    )
    recipe.write_text(text)
    code, _, err = gem("show", str(recipe), "--trust")
    assert code == 2 and f"Unknown keyword argument of {module}:Doors: 'lamp'" in err
