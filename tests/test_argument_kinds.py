"""The public functions say in one line what they take, where something else is given."""

from __future__ import annotations

import asyncio
from importlib.metadata import EntryPoint

import pytest

import gem_core
from gem_core.advantages import compute_advantages
from gem_core.env import registration
from gem_core.env.interface import Wrapper
from gem_core.errors import AdvantageError, GemError, KindError, RecipeError, RegistrationError
from gem_core.tools import ToolEnv

GAME = "game:GuessTheNumber-v0-easy"


class Task(gem_core.Env):
    """Never played."""

    def _reset(self, options):
        return "", {}

    def _step(self, action):
        return "", 0.0, True, False, {}


def game():
    return gem_core.make(GAME)


CALLS = {
    "advantages of a list": (
        lambda: compute_advantages("rebn", [1.0, 2.0], gamma=0.9),
        AdvantageError,
        "takes a TurnBatch, not a list: write TurnBatch(rewards=..., episode=...)",
    ),
    "tools by name": (lambda: ToolEnv(game(), ["python"]), KindError, "make_tool('python')"),
    "tools as one text": (lambda: ToolEnv(game(), "python"), KindError, "a list of Tool objects"),
    "environments as machines": (
        lambda: asyncio.run(gem_core.play_many([game()], None)),
        KindError,
        "EpisodeMachine",
    ),
    "a class as entry point": (
        lambda: gem_core.register("my:Task-v0", Task),
        RegistrationError,
        "an entry point is a text, not a class: write '",
    ),
    "no text as entry point": (
        lambda: gem_core.register("my:Task-v0", None),
        RegistrationError,
        "give two texts",
    ),
    "a class as id": (lambda: gem_core.make(Task), RegistrationError, "not the class Task"),
    "no id": (lambda: gem_core.spec(None), RegistrationError, "not a NoneType"),
    "an id in a wrapper": (lambda: Wrapper(GAME), KindError, "gem_core.make(id)"),
    "an environment to check": (lambda: gem_core.check_env(game()), KindError, "or the class"),
    "no recipe": (lambda: gem_core.load_recipe(None), RecipeError, "a text or a path"),
    "a table as recipe": (lambda: gem_core.load_recipe({}), RecipeError, "recipe_from_dict"),
    "one override": (
        lambda: gem_core.load_recipe("guess-the-number-easy", "tiny", "seed=1"),
        RecipeError,
        "a list of texts: ['seed=1']",
    ),
}


@pytest.mark.parametrize(("call", "error", "message"), CALLS.values(), ids=CALLS)
def test_one_line_says_what_is_taken(call, error, message):
    with pytest.raises(error) as raised:
        call()
    assert message in str(raised.value) and "\n" not in str(raised.value)
    assert isinstance(raised.value, GemError)


@pytest.mark.parametrize("value", ["gem_core:Env", "gem_core.errors"])
def test_an_entry_point_that_is_no_function_is_named(monkeypatch, value):
    """An installed package names a class or a module, and not what registers environments."""
    entry = EntryPoint("mine", value, "gem_core.envs")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: [entry])
    monkeypatch.setattr(registration, "_plugins_loaded", False)
    with pytest.warns(RuntimeWarning, match=r"'mine'.*must name a function without arguments"):
        gem_core.list_envs()
