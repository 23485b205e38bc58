"""Arguments of another kind are one line where they are given, not a failure of every episode."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from gem_core.env.registration import make
from gem_core.episodes.context import Context, HFTokenizer
from gem_core.episodes.machine import EpisodeMachine, Limits
from gem_core.episodes.rollout import MicroBatcher, play, play_batch, play_many
from gem_core.episodes.rollouts import Rollouts
from gem_core.errors import GemError, KindError, UnknownNameError
from gem_core.runs.tasks import MachineFactory

ENV = "game:GuessTheNumber-v0-easy"


def refused(call, *words):
    """Require that a call ends with one line that has some words."""
    with pytest.raises(GemError) as caught:
        call()
    text = str(caught.value)
    assert isinstance(caught.value, (KindError, UnknownNameError)), caught.value
    assert "\n" not in text and len(text) < 250, text
    for word in words:
        assert word in text, text


def test_a_context(kit):
    refused(lambda: Context(kit.tokenizer, kit.template), "Context(template)", "get_template")
    refused(lambda: Context("qwen3_game", kit.tokenizer), "Context(template)", "str")
    refused(lambda: Context(kit.template, "gpt2"), "Context(tokenizer=)", "HFTokenizer")
    refused(lambda: Context(kit.template, type(kit.tokenizer)), "not the class Bytes")
    refused(lambda: Context(kit.template, kit.tokenizer, "all"), "history", "'all'")
    refused(lambda: Context(kit.template, kit.tokenizer, "window", "3"), "window", "str")


def test_a_tokenizer(kit):
    class WithoutStops:
        encode = decode = None

    refused(lambda: Context(kit.template, WithoutStops()), "stop_ids", "HFTokenizer")
    refused(lambda: HFTokenizer("gpt2", kit.template), "AutoTokenizer.from_pretrained")
    refused(lambda: HFTokenizer(kit.template, kit.tokenizer), "HFTokenizer(tokenizer)")
    refused(lambda: HFTokenizer(kit.tokenizer, "qwen3_game"), "HFTokenizer(template=)")


def test_a_machine(kit):
    env = make(ENV)
    context = Context(kit.template, kit.tokenizer)
    refused(lambda: EpisodeMachine(context, env), "EpisodeMachine(env)", "gem_core.make")
    refused(lambda: EpisodeMachine(ENV, context), "EpisodeMachine(env)", "str")
    refused(lambda: EpisodeMachine(type(env), context), "not the class")
    refused(lambda: EpisodeMachine(env, kit.template), "EpisodeMachine(context)", "Template")
    refused(lambda: EpisodeMachine(env, context, 7), "EpisodeMachine(limits)", "int")
    refused(lambda: EpisodeMachine(env, context, seed="7"), "EpisodeMachine(seed=)")
    assert EpisodeMachine(env, context, seed=np.int64(7)).seed == 7


@pytest.mark.parametrize(
    "values",
    [
        {"max_turns": "5"},
        {"max_turns": 0},
        {"max_tokens_per_turn": None},
        {"max_tokens_per_turn": 2.5},
        {"turn_deadline_s": 0},
        {"episode_deadline_s": float("nan")},
        {"cut_action": "drop"},
        {"train_on_failed": "no"},
    ],
)
def test_limits(values):
    refused(lambda: Limits(**values), f"Limits({next(iter(values))}=)")


def test_a_factory(kit):
    refused(lambda: MachineFactory("recipe.toml"), "MachineFactory(recipe)", "load_recipe")
    refused(lambda: MachineFactory({"env": []}), "MachineFactory(recipe)", "dict")


def test_what_is_played_and_by_whom(kit):
    env = make(ENV)
    machine = kit.machine(kit.won())
    echo = kit.Echo()

    class OnlyBatches:
        complete_batch = None

    for many in ([env], [machine, env], [ENV]):
        refused(lambda many=many: asyncio.run(play_many(many, echo)), "play_many", "EpisodeMachine")
        refused(lambda many=many: play_batch(many, echo), "play_batch", "EpisodeMachine(env, conte")
    refused(lambda: asyncio.run(play_many(machine, echo)), "play_many", "Iterable")
    refused(lambda: asyncio.run(play_many(echo, [machine])), "play_many")
    refused(lambda: asyncio.run(play_many([machine], OnlyBatches())), "MicroBatcher")
    refused(lambda: asyncio.run(play(env, echo)), "play", "EpisodeMachine")
    refused(lambda: play_batch([machine], env), "play_batch", "complete_batch")
    refused(lambda: play_batch([machine], kit.Echo), "not the class Echo")
    refused(lambda: MicroBatcher(machine), "MicroBatcher", "complete_batch")
    refused(lambda: Rollouts(echo, [[machine]]), "Rollouts(groups)")
    refused(lambda: Rollouts([[machine]], OnlyBatches()), "Rollouts", "MicroBatcher")
    for groups in ([machine], [[env]]):
        play_one = lambda groups=groups: asyncio.run(Rollouts(groups, echo).batch(1))  # noqa: E731
        refused(play_one, "EpisodeMachine")
    assert machine.start() is not None  # none of them has begun it


def test_templates_that_are_derived_are_templates(kit):
    assert Context(replace(kit.template, name="other"), kit.tokenizer).messages == []
