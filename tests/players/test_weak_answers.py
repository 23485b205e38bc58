"""Weak players of rg:*: each reads an answer off the question, and it is mostly wrong."""

from __future__ import annotations

from random import Random

import pytest

import gem_core
from gem_core.env.parsing import render
from gem_core.envs.players import get_player
from gem_core.envs.players.registry import WEAK
from gem_core.envs.players.weak_answers import CopiesInput, FirstNumber, FirstWord, LastNumber
from gem_core.errors import GemError

PLAYED = [
    (env_id, name)
    for env_id, players in WEAK.items()
    if env_id.startswith("rg:") and env_id != "rg:*"
    for name in players
]


@pytest.mark.parametrize(("env_id", "name"), PLAYED)
def test_it_answers_in_form_the_same_every_time_and_is_mostly_wrong(env_id: str, name: str) -> None:
    env = gem_core.make(env_id)
    right = 0
    for seed in range(100):
        observation, info = env.reset(seed=seed)
        actions = set()
        for other in range(2):
            player = get_player(name, env_id, other, env=env)
            player.reset(observation, info)
            actions.add(player.act(observation, info))
        assert len(actions) == 1
        result = env.step(actions.pop())
        assert result[4].get("error") is None
        right += result[4]["success"]
    assert right <= 10


@pytest.mark.parametrize(
    ("player", "question", "answer"),
    [
        (FirstNumber, "Calculate -12 + 3.", "-12"),
        (FirstNumber, "if you have 3 cows, 14 ants?", "3"),
        (LastNumber, "Solve for o: 87*o + 18 = -5673", "-5673"),
        (LastNumber, "the following arithmetic problem: 7 - 3 =", "3"),
        (CopiesInput, "Input:  1 0\nOutput: 1 1\n\nBelow.\n\nInput:\n0 2 0 2\n\nWrite", "0 2 0 2"),
        (FirstWord, 'the letter "e" appear in the text: "Hesse see me"?', "2"),
    ],
)
def test_what_is_read(player: type[FirstNumber], question: str, answer: str) -> None:
    reader = player(Random(0), answer_format="plain")
    reader.reset(question, {})
    assert reader.act(question, {}) == render(answer, "plain")


@pytest.mark.parametrize("player", [FirstNumber, LastNumber, CopiesInput, FirstWord])
def test_a_question_without_it_is_an_error(player: type[FirstNumber]) -> None:
    reader = player(Random(0))
    reader.reset("How are you?", {})
    with pytest.raises(GemError, match="cannot read this observation"):
        reader.act("How are you?", {})
