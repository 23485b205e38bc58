"""How many tokens an engine computes for an episode, with the engine settings of each trainer.

A turn's prompt is its whole history. An engine that keeps the keys and values of prefixes computes
what is new; one that does not computes every turn's history again. The count here is that of vLLM
and SGLang: whole blocks are kept, and at least the last token of a prompt is computed.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

from gem_core.episodes.data import Completion, FinishReason, Segment
from gem_core.errors import RecipeError
from gem_core.runs.recipe.load import load_recipe, recipe_from_dict
from gem_parity.frozen import frozen_episodes

NATIVE = Path(__file__).parent / "native"


class Engine(NamedTuple):
    """How a trainer's configuration says whether its engine keeps prefixes.

    ``key`` is a native key, ``kept`` its value with which prefixes are kept, ``unsaid`` whether
    they are where the configuration has no such key, ``block`` the tokens of a block, ``off`` what
    a recipe sets to end it, or what the trainer refuses to hear of.
    """

    key: str
    kept: bool
    unsaid: bool
    block: int
    off: dict[str, bool]


VLLM = "enable_prefix_caching"
SGLANG = "rollout.server_args.disable_radix_cache"
ROLLOUT = f"actor_rollout_ref.rollout.{VLLM}"
ENGINES = {
    "trl": Engine(VLLM, True, True, 16, {VLLM: False}),
    "verl": Engine(ROLLOUT, True, False, 16, {ROLLOUT: False}),
    "openrlhf": Engine(f"vllm.{VLLM}", True, False, 16, {f"vllm.{VLLM}": False}),
    "oat": Engine(VLLM, True, False, 16, {VLLM: False}),
    "rl2": Engine(SGLANG, False, True, 1, {f"+{SGLANG}": True}),
}
"""TRL hands its vLLM nothing about it (`tests/integrations/trl/test_vllm.py`), nor RL2 its SGLang:
both engines keep prefixes by themselves. vLLM 0.8, which Oat has, does not in its older engine."""


class Tokens(NamedTuple):
    """What an engine computes for an episode: tokens of prompts, and sampled ones."""

    prefilled: int
    sampled: int


@pytest.fixture(scope="module")
def native(trainer_name):
    """The module that reads the trainer's configuration."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(NATIVE))
        return import_module(f"native_{trainer_name}")


def conversation(turns, first, action, observation):
    """One row: ``turns`` actions, each after the first prompt or an observation."""
    row = Segment()
    for turn in range(turns):
        start = len(row.token_ids)
        row.add_context(list(range(start, start + (observation if turn else first))))
        start = len(row.token_ids)
        ids = list(range(start, start + action))
        row.add_action(turn, Completion(ids, [-1.0] * action, FinishReason.STOP))
    return [row]


def shared(one, other):
    """Length of the common beginning."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def computed(rows, block):
    """Count an episode's tokens; ``block`` 0 = nothing is kept.

    The last token that is sampled has not been computed when its turn ends.
    """
    prefilled = sampled = 0
    kept = []
    for row in rows:
        for _, start, end in row.spans:
            prompt = row.token_ids[:start]
            longest = max((shared(prompt, held) for held in kept), default=0) if block else 0
            found = min(longest, start - 1) // block * block if block else 0
            prefilled += start - found
            sampled += end - start
            kept.append(row.token_ids[: end - 1])
    return Tokens(prefilled, sampled)


def block_of(native, name, recipe):
    """Tokens of a block that the engine of a recipe keeps; 0 = it keeps nothing."""
    engine = ENGINES[name]
    try:
        said = native.value(native.configuration(recipe), engine.key)
    except (AttributeError, AssertionError):  # the configuration has no such key
        said = None
    keeps = engine.unsaid if said is None else said is engine.kept
    return engine.block if keeps else 0


def test_the_count_is_that_of_a_block_cache():
    (row,) = rows = conversation(turns=3, first=20, action=10, observation=5)
    assert len(row.token_ids) == 60
    assert computed(rows, 0) == (20 + 35 + 50, 30)
    assert computed(rows, 1) == (20 + (35 - 29) + (50 - 44), 30)
    assert computed(rows, 16) == (20 + (35 - 16) + (50 - 32), 30)
    again = [row, row]  # a history that is repeated whole: the last token of a prompt is computed
    assert computed(again, 1).prefilled == computed(rows, 1).prefilled + 3


@pytest.mark.parametrize("profile", ["paper", "small"])
def test_a_token_of_a_history_is_computed_once(native, trainer_name, profile):
    block = block_of(native, trainer_name, load_recipe("guess-the-number-easy", profile))
    long = conversation(turns=10, first=600, action=300, observation=50)
    for rows in (long, *(episode.segments for episode in frozen_episodes(16))):
        tokens = computed(rows, block)
        whole = sum(len(row.token_ids) for row in rows)
        turns = sum(len(row.spans) for row in rows)
        assert tokens.prefilled <= whole - tokens.sampled + turns * max(block, 1)
        assert tokens.sampled == sum(end - start for row in rows for _, start, end in row.spans)


def test_an_engine_that_keeps_nothing_is_found(native, trainer_name):
    recipe = load_recipe("guess-the-number-easy", "paper").to_dict()
    changed = recipe_from_dict(recipe | {"trainer": {trainer_name: ENGINES[trainer_name].off}})
    if trainer_name == "trl":
        with pytest.raises(RecipeError, match=VLLM):
            native.configuration(changed)
        return
    assert block_of(native, trainer_name, changed) == 0
    long = conversation(turns=10, first=600, action=300, observation=50)
    assert computed(long, 0) == (21750, 3000)
    assert computed(long, 16).prefilled < 1200 and computed(long, 1).prefilled < 1100
