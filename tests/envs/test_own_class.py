"""An id that is the class of an environment, and the players that a class brings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import gem_core
from gem_core.env.registration import make_from_data, references, spec
from gem_core.env.registration.references import (
    TRUST_VARIABLE,
    CodeReferenceError,
    TrustError,
    trust,
)
from gem_core.envs.players import get_player, play_episode, player_names
from gem_core.errors import RegistrationError, UnknownNameError
from gem_core.runs.environments.tools import with_tools
from gem_core.runs.recipe.load import recipe_from_dict
from gem_core.tools import make_tool
from gem_server.sessions import is_served

SOURCE = """
from pathlib import Path
Path(__file__).with_name("marker").touch()
from os import system
from gem_core.env.interface import Env
from gem_core.envs.players import Player
from gem_core.tools import Tool, ToolResult

class Right(Player):
    def reset(self, obs, info):
        pass
    def act(self, obs, info):
        return "yes"

class Wrong(Right):
    def act(self, obs, info):
        return "no"

class Question(Env):
    players = {"expert": Right, "denies": Wrong}
    def _reset(self, options):
        return "Yes or no?", {}
    def _step(self, action):
        return "", float(action == "yes"), True, False, {"success": action == "yes"}

class Echo(Tool):
    name = "echo"
    description = "Says what it is told."
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    tag = "echo"
    def __init__(self, *, loud=False, formats=None):
        super().__init__(formats)
    def run(self, call, session, seconds):
        return ToolResult(call.arguments["text"])

class Taken(Question):
    players = {"random": Right}

class NoPlayer(Question):
    players = {"expert": Question}
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.delenv(TRUST_VARIABLE, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_question.py").write_text(SOURCE)
    references._packages.cache_clear()
    yield "own_question"
    sys.modules.pop("own_question", None)
    references._packages.cache_clear()


@pytest.fixture
def plugin(tmp_path: Path) -> None:
    info = tmp_path / "own_question-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-question\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[gem_core.tools]\nx = own_question:Question\n")


def test_a_program_makes_a_class_by_its_name(module: str) -> None:
    env = gem_core.make(f"{module}:Question")
    assert env.reset(seed=0)[0] == "Yes or no?"
    assert env.spec is not None and env.spec.id == f"{module}:Question"


@pytest.mark.parametrize(
    "use",
    [
        spec,
        lambda id: make_from_data(id, {}),
        lambda id: recipe_from_dict({"name": "x", "env": [{"id": id}]}),
    ],
)
def test_data_name_one_only_with_trust(
    module: str, tmp_path: Path, use: Callable[[str], object]
) -> None:
    with pytest.raises(TrustError, match="give --trust to the command"):
        use(f"{module}:Question")
    assert not (tmp_path / "marker").exists()
    with trust(True):
        assert use(f"{module}:Question")


@pytest.mark.usefixtures("plugin")
def test_data_name_one_of_a_plugin(module: str) -> None:
    assert make_from_data(f"{module}:Question", {}).reset(seed=0)
    with pytest.raises(TrustError, match="is not defined there"):
        spec(f"{module}:system")


def test_what_is_no_environment_is_refused(module: str, tmp_path: Path) -> None:
    with trust(True):
        for id in ("os:system", "subprocess:Popen", f"{module}:Right"):
            with pytest.raises(CodeReferenceError, match="not a class derived from Env"):
                spec(id)
        with pytest.raises(CodeReferenceError, match="no attribute 'Questoin'"):
            spec(f"{module}:Questoin")
        for id in ("no_such_module:Task", "gem_core.envs.games.sudoku:Sudoku", "game:Sudoku-v9"):
            with pytest.raises(UnknownNameError):
                spec(id)
        (tmp_path / "own_broken.py").write_text("1 / 0\n")
        with pytest.raises(RegistrationError, match="cannot be imported: ZeroDivisionError"):
            spec("own_broken:Task")


def test_the_class_brings_its_players(module: str) -> None:
    id = f"{module}:Question"
    env = gem_core.make(id)
    assert player_names(id, env) == ("random", "expert", "denies")
    with trust(True):
        assert player_names(id) == ("random", "expert", "denies")
    assert play_episode(env, get_player("expert", id, 0, env=env), seed=0).success
    assert not play_episode(env, get_player("denies", id, 0, env=env), seed=0).success
    with pytest.raises(UnknownNameError, match="has: random, expert, denies"):
        get_player("denied", id, 0, env=env)


@pytest.mark.parametrize("name", ["Taken", "NoPlayer"])
def test_players_that_are_none_are_refused(module: str, name: str) -> None:
    env = gem_core.make(f"{module}:{name}")
    with pytest.raises(RegistrationError, match="players of its class must be a dict"):
        get_player("expert", f"{module}:{name}", 0, env=env)


def test_a_recipe_names_the_players_of_the_class(module: str) -> None:
    table = {"name": "x", "env": [{"id": f"{module}:Question"}]}
    tiny = {"path": "tiny", "tiny": {"teacher": "expert", "habit": "denies"}}
    with trust(True):
        recipe_from_dict({**table, "model": tiny})
        with pytest.raises(UnknownNameError, match="denied"):
            recipe_from_dict({**table, "model": {"path": "tiny", "tiny": {"habit": "denied"}}})


def test_a_recipe_names_a_tool_of_ones_own(module: str) -> None:
    tool = f"{module}:Echo"
    assert make_tool(tool, loud=True).name == "echo"
    table = {"id": "qa:Auction", "tools": [{"name": tool, "loud": True}]}
    with pytest.raises(TrustError, match="give --trust"):
        recipe_from_dict({"name": "x", "env": [table]})
    with trust(True):
        config = recipe_from_dict({"name": "x", "env": [table]}).env[0]
        env = with_tools(gem_core.make("qa:Auction"), config, "env.0")
        env.reset(seed=0)
        assert "hello" in env.step("<echo>hello</echo>")[0]
        for wrong, error in (
            ({"name": tool, "lowd": True}, UnknownNameError),
            (f"{module}:Right", CodeReferenceError),
            ("os:system", CodeReferenceError),
        ):
            with pytest.raises(error):
                recipe_from_dict({"name": "x", "env": [{"id": "qa:Auction", "tools": [wrong]}]})


@pytest.mark.usefixtures("plugin")
def test_no_client_of_a_server_names_a_class(module: str) -> None:
    with trust(True):
        assert spec(f"{module}:Question")
        for patterns in (("*",), (f"{module}:*",)):
            assert not is_served(f"{module}:Question", patterns)
