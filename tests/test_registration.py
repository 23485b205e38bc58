"""The registry: ids, specs, fingerprints, errors with suggestions, entry points."""

from __future__ import annotations

import pickle
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import gem_core
from gem_core.env import registration
from gem_core.env.interface import Env
from gem_core.env.registration import entry_points
from gem_core.env.spec import EnvSpec
from gem_core.errors import RegistrationError, UnknownNameError

GUESS = "game:GuessTheNumber-v0-easy"
ENTRY = "gem_core.envs.games.guess_the_number:GuessTheNumber"


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo registrations after the test."""
    gem_core.list_envs()
    monkeypatch.setattr(registration, "_registry", dict(registration._registry))


def test_list_envs_filters_by_pattern() -> None:
    everything = gem_core.list_envs()
    assert GUESS in everything and everything == sorted(everything)
    assert gem_core.list_envs("game:*-easy") == [
        i for i in everything if i.startswith("game:") and i.endswith("-easy")
    ]
    assert gem_core.list_envs("SUDOKU") == [i for i in everything if "sudoku" in i.lower()]


def test_make_sets_the_merged_spec_and_overrides() -> None:
    env = gem_core.make(GUESS, max_turns=9)
    assert env.spec is not None
    assert env.spec.kwargs == {"min_number": 1, "max_number": 10, "max_turns": 9}
    assert gem_core.spec(GUESS).kwargs["max_turns"] == 4
    assert "within 9 turns" in env.reset(seed=0)[0]


def test_make_takes_a_spec() -> None:
    spec = gem_core.spec(GUESS).replace(max_turns=2)
    env = gem_core.make(EnvSpec.from_json(spec.to_json()))
    assert env.spec == spec
    assert "within 2 turns" in env.reset(seed=0)[0]


@pytest.mark.parametrize("name", ["game:GuesTheNumber-v0-easy", "game:guessthenumber-v0-easy"])
def test_unknown_id_suggests_close_ones(name: str) -> None:
    with pytest.raises(UnknownNameError, match=f"Did you mean '{GUESS}'"):
        gem_core.make(name)


def test_unknown_keyword_argument_names_the_accepted_ones() -> None:
    with pytest.raises(UnknownNameError, match="max_turn'") as caught:
        gem_core.make(GUESS, max_turn=3)
    for name in ("'max_turns'", "min_number", "answer_format", "rewards", "compat"):
        assert name in str(caught.value)


def test_wrong_values_are_named() -> None:
    with pytest.raises(ValueError, match="max_turns must be at least 1"):
        gem_core.make(GUESS, max_turns=0)
    with pytest.raises(UnknownNameError, match="Did you mean 'boxed'"):
        gem_core.make(GUESS, answer_format="boxd")
    with pytest.raises(UnknownNameError, match="Did you mean 'success'"):
        gem_core.make(GUESS, rewards={"sucess": 1})


def test_spec_is_immutable_hashable_and_survives_json_and_pickle() -> None:
    spec = gem_core.spec(GUESS)
    with pytest.raises(AttributeError, match="immutable"):
        spec.id = "x"
    for copy in (EnvSpec.from_json(spec.to_json()), pickle.loads(pickle.dumps(spec))):
        assert copy == spec and hash(copy) == hash(spec)
        assert copy.fingerprint() == spec.fingerprint()


def test_fingerprint_names_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = gem_core.spec(GUESS)
    prints = {spec.fingerprint()}
    assert all(len(p) == 16 and int(p, 16) >= 0 for p in prints)
    prints.add(spec.replace(max_turns=9).fingerprint())
    prints.add(gem_core.spec("game:GuessTheNumber-v0-hard").fingerprint())
    prints.add(EnvSpec(spec.id, spec.entry_point, spec.kwargs, "data-1").fingerprint())
    monkeypatch.setattr(ENTRY.replace(":", ".") + ".version", 99)
    prints.add(spec.fingerprint())
    assert len(prints) == 5


def test_fingerprint_is_the_same_in_another_process() -> None:
    code = f"import gem_core; print(gem_core.spec({GUESS!r}).fingerprint())"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert child.stdout.strip() == gem_core.spec(GUESS).fingerprint()


def test_a_keyword_argument_that_is_not_json_is_named_in_the_error() -> None:
    with pytest.raises(TypeError, match="must be JSON"):
        gem_core.spec(GUESS).replace(rewards=print).to_json()


@pytest.mark.usefixtures("registry")
def test_register_and_make() -> None:
    gem_core.register("my:Guess-v0", ENTRY, min_number=1, max_number=3)
    assert "from 1 to 3" in gem_core.make("my:Guess-v0").reset(seed=0)[0]
    gem_core.register("my:Guess-v0", ENTRY, min_number=1, max_number=3)
    with pytest.raises(RegistrationError, match="already registered"):
        gem_core.register("my:Guess-v0", ENTRY, min_number=1, max_number=4)


@pytest.mark.usefixtures("registry")
def test_register_refuses_malformed_names_and_make_missing_classes() -> None:
    for name in ("Guess", "a b:c", ":x", "x:"):
        with pytest.raises(RegistrationError, match="Malformed id"):
            gem_core.register(name, ENTRY)
    with pytest.raises(RegistrationError, match="module:Class"):
        gem_core.register("my:Guess-v0", "gem_core.envs")
    gem_core.register("my:Guess-v1", "gem_core.env.interface:Nothing")
    with pytest.raises(RegistrationError, match="has no 'Nothing'"):
        gem_core.make("my:Guess-v1")


@pytest.mark.usefixtures("registry")
def test_a_registered_env_may_be_any_class() -> None:
    gem_core.register("my:Env-v0", "gem_core.envs.games.sudoku:Sudoku", scale=4, holes=3)
    assert isinstance(gem_core.make("my:Env-v0"), Env)


PLUGIN = """
import gem_core
def environments():
    gem_core.register("plug:Guess-v0", "gem_core.envs.games.guess_the_number:GuessTheNumber")
def broken():
    raise RuntimeError("no data here")
def exits():
    raise SystemExit(0)
"""


def test_entry_points_are_loaded_only_when_an_id_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "plug.py").write_text(PLUGIN)
    info = tmp_path / "plug-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plug\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[gem_core.envs]\nplug = plug:environments\nbad = plug:broken\nexits = plug:exits\n"
    )
    code = (
        "import sys, gem_core\n"
        f"gem_core.make({GUESS!r})\n"
        "assert 'plug' not in sys.modules and 'importlib.metadata' not in sys.modules\n"
        "assert gem_core.make('plug:Guess-v0').spec.id == 'plug:Guess-v0'\n"
        "assert 'plug:Guess-v0' in gem_core.list_envs()\n"
    )
    child = subprocess.run(
        [
            sys.executable,
            "-S",
            "-c",
            f"import sys; sys.path[:] = {[str(tmp_path), *sys.path]!r}\n{code}",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    assert "'bad'" in child.stderr and "no data here" in child.stderr
    assert "'exits'" in child.stderr and "SystemExit: 0" in child.stderr


def _claims(monkeypatch: pytest.MonkeyPatch, *points: tuple[str, str]) -> None:
    found = tuple(EntryPoint(name, value, "gem_core.namespaces") for name, value in points)
    monkeypatch.setattr(entry_points, "list_entry_points", lambda group: found)


def test_a_package_offers_a_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    _claims(monkeypatch, ("theirs", "gem_core.envs.games.sudoku:Sudoku"))
    known = gem_core.spec("theirs:one/two.x")
    assert (known.entry_point, known.kwargs) == (
        "gem_core.envs.games.sudoku:Sudoku",
        {"name": "one/two.x"},
    )
    assert registration.is_foreign("theirs:*") and not registration.is_foreign("theirs")
    with pytest.raises(UnknownNameError):
        gem_core.spec("theirs:")


@pytest.mark.parametrize("name", ["theirs", "remote"])
def test_a_namespace_has_one_package(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    _claims(monkeypatch, ("theirs", "a:B"), (name, "c:D"))
    with pytest.raises(RegistrationError, match=f"Two packages claim the namespace '{name}'"):
        gem_core.make("theirs:x")
