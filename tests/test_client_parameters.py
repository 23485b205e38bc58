"""What a client of a server may set: every id and every parameter of every constructor.

The parameters are read from the signatures: one that nobody declared is refused, and one that is
declared and takes text, a path or an unbounded number is found here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from inspect import Parameter, signature
from typing import Any

import pytest

import gem_core
from gem_core.env import registration
from gem_core.env.registration import check_client_parameters, client_parameters
from gem_core.env.registration.parameters import (
    Choice,
    Flag,
    Kind,
    Maybe,
    Number,
    ParameterError,
    Rewards,
    Sizes,
    Whole,
    check_declared,
)
from gem_core.envs._client_parameters import _BY_CLASS, _BY_GAME
from gem_core.errors import GemError, RegistrationError

IDS = gem_core.list_envs()
HOSTILE: tuple[Any, ...] = (
    *(
        "subprocess:Popen",
        "os:system",
        "gem_core.envs.multi_agent.games:Nim",
        "guarded",
        "builtins",
    ),
    *("/etc/passwd", "../x", "~/x", "x.jsonl", ".", "", "axon-rl/GSM-8k", "a b", "\x00", "é"),
    *("http://127.0.0.1:1/x", "file:///etc/passwd", "x" * 100_000),
    *(10**30, -(10**30), 10**5000, math.nan, math.inf, -math.inf, 1e300, b"x"),
    *([], [[]], [[[[1]]]], ["a"], [1, "a"], [4, 10**30], [True, True], {"a": {"b": 1}}, {"": 1}),
    *({"success": math.nan}, {"success": "1"}, {"success": 10**30}, {"__class__": 1}, {1: 1}),
    {f"name_{chr(97 + i)}": 1 for i in range(20)},
)
"""What no parameter takes from a client."""


def constructors(spec: gem_core.EnvSpec) -> Iterator[Any]:
    """Yield the class of an environment, and that of the game that takes its other options."""
    yield spec.load()
    game = spec.kwargs.get("game")
    if game is not None:
        yield gem_core.EnvSpec(spec.id, game).load()


@cache
def names_of(constructor: Any) -> frozenset[str]:
    """Return every parameter that a constructor or one above it names."""
    named = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return frozenset(
        p.name
        for initialiser in registration._initialisers(constructor)
        for p in signature(initialiser).parameters.values()
        if p.kind in named and p.name != "self"
    )


def samples(kind: Kind) -> list[Any]:
    """Return the bounds of a kind, or all there is."""
    if isinstance(kind, Maybe):
        return [*samples(kind.kind), None]
    if isinstance(kind, Whole | Number):
        return [kind.low, kind.high]
    if isinstance(kind, Sizes):
        return [[kind.low] * kind.length, [kind.high] * kind.length]
    if isinstance(kind, Choice):
        return list(kind.values)
    if isinstance(kind, Rewards):
        return [{}, {"success": 2.0}]
    assert isinstance(kind, Flag)
    return [True, False]


def taken_of_the_hostile(kind: Kind) -> list[Any]:
    """Return the hostile values that a kind takes."""
    return [value for value in HOSTILE if kind.accepts(value)]


@pytest.mark.parametrize("id", IDS)
def test_every_parameter_is_declared_and_bounded_or_refused(id: str) -> None:
    spec = gem_core.spec(id)
    declared = client_parameters(id)
    names = frozenset[str]().union(*map(names_of, constructors(spec)))
    assert set(declared) <= names, "declared, and no constructor takes it"
    for name in {*names, "no_such_parameter"} - set(declared):
        for value in (*HOSTILE[:6], 1, True, None):
            with pytest.raises(ParameterError, match="cannot set"):
                check_client_parameters(id, {name: value})
    for name, kind in declared.items():
        assert not taken_of_the_hostile(kind), name
        for value in HOSTILE:
            with pytest.raises(ParameterError, match=f"{name} must be") as refused:
                check_client_parameters(id, {name: value})
            assert "\n" not in str(refused.value) and len(str(refused.value)) < 700
        for value in samples(kind):
            check_client_parameters(id, {name: value})


def test_a_kind_that_takes_text_would_be_found() -> None:
    class Text:
        def accepts(self, value: object) -> bool:
            return isinstance(value, str)

        def schema(self) -> dict[str, Any]:
            return {}

    assert taken_of_the_hostile(Text())


def one_of_each() -> list[str]:
    """Return an id of every class, or game, that declares something."""
    first: dict[tuple[str, str], str] = {}
    for id in IDS:
        spec = gem_core.spec(id)
        first.setdefault((spec.entry_point, spec.kwargs.get("game", "")), id)
    return list(first.values())


def test_no_table_is_for_a_class_that_is_gone() -> None:
    specs = [gem_core.spec(id) for id in IDS]
    assert {*_BY_CLASS, *_BY_GAME} <= {s.entry_point for s in specs} | {
        s.kwargs.get("game") for s in specs
    }


@pytest.mark.parametrize("id", one_of_each())
@pytest.mark.filterwarnings("ignore")
def test_values_within_the_bounds_make_an_environment(id: str) -> None:
    """One at a time; two that do not go together are the environment's own error, on one line."""
    data = {"dataset": "sample"} if "dataset" in client_parameters(id) else {}
    for name, kind in client_parameters(id).items():
        made = 0
        for value in samples(kind):
            try:
                env = gem_core.make(id, **{**data, name: value})
            except (GemError, ValueError) as error:
                assert "\n" not in str(error)
                continue
            observation, _ = env.reset(seed=1)
            assert observation
            env.close()
            made += 1
        assert made, name


@pytest.mark.parametrize("namespace", registration.foreign_namespaces())
def test_nothing_of_another_package_is_declared(namespace: str) -> None:
    id = f"{namespace}:x"
    names = names_of(gem_core.spec(id).load())
    assert "name" in names and client_parameters(id) == {}
    for name in names:
        with pytest.raises(ParameterError, match="It may set: nothing"):
            check_client_parameters(id, {name: 1})


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "_registry", dict(registration._builtin()))
    monkeypatch.setattr(registration, "_declared", {})


SUDOKU = "gem_core.envs.games.sudoku:Sudoku"


@pytest.mark.usefixtures("registry")
def test_a_strangers_environment_declares_its_own() -> None:
    gem_core.register("my:Sudoku-v0", SUDOKU, scale=4)
    with pytest.raises(ParameterError, match="It may set: nothing"):
        check_client_parameters("my:Sudoku-v0", {"holes": 5})
    gem_core.register("my:Other-v0", SUDOKU, scale=4, client_parameters={"holes": Whole(1, 9)})
    check_client_parameters("my:Other-v0", {"holes": 9})
    with pytest.raises(ParameterError, match="holes must be a whole number from 1 to 9, not 10"):
        check_client_parameters("my:Other-v0", {"holes": 10})
    gem_core.register("my:Other-v0", SUDOKU, scale=4)
    assert list(client_parameters("my:Other-v0")) == ["holes"]
    with pytest.raises(RegistrationError, match="other client_parameters"):
        gem_core.register("my:Other-v0", SUDOKU, scale=4, client_parameters={"holes": Whole(1, 8)})
    assert "client_parameters" not in gem_core.spec("my:Other-v0").kwargs


def test_the_operator_allows_values_and_not_names() -> None:
    declared = {"max_turns": Whole(1, 10)}
    allowed = [{"dataset": "/data/a.jsonl", "split": "train"}, {"level": "confined"}]
    for given in (
        {},
        {"max_turns": 3},
        {"dataset": "/data/a.jsonl"},
        {"dataset": "/data/a.jsonl", "split": "train", "max_turns": 3},
        {"level": "confined"},
    ):
        check_declared("x:y", declared, given, allowed)
    for given in (
        {"dataset": "/data/b.jsonl"},
        {"dataset": "/data/a.jsonl", "level": "confined"},
        {"level": "guarded"},
        {"dataset": "/data/a.jsonl", "max_turns": 11},
    ):
        with pytest.raises(ParameterError, match=r"gem-core serve --recipe FILE"):
            check_declared("x:y", declared, given, allowed)


def test_a_misspelt_name_gets_a_suggestion() -> None:
    with pytest.raises(ParameterError, match=r"cannot set 'max_numbr'. Did you mean 'max_number'"):
        check_client_parameters("game:GuessTheNumber-v0-easy", {"max_numbr": 5})
