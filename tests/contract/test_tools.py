"""Episodes with tool calls through the real package: what tools return is never trained on, and
rows, advantages, loss and gradient agree with the plain-torch reference."""

from __future__ import annotations

import pytest

from gem_parity.measure import measure
from gem_parity.reference import reference
from gem_parity.replay import expected_rows
from gem_parity.replays import load_replay
from gem_parity.tool_episodes import SCRIPTS, tool_episodes

SETTINGS = (
    "algorithm.estimator=rebn",
    "algorithm.epochs=1",
    "batch.episodes=16",
    "batch.group_size=2",
)


@pytest.fixture(scope="module")
def episodes():
    return tool_episodes()


@pytest.fixture(scope="module")
def found(package, trainer_name, episodes, model_dir):
    from gem_core.runs.recipe.load import load_recipe

    recipe = load_recipe("guess-the-number-easy", "tiny", SETTINGS)
    return recipe, load_replay(package.removeprefix("gem_")).replay(recipe, episodes, model_dir)


def text_of(ids):
    return bytes(i - 2 for i in ids if i >= 2).decode(errors="replace")


def test_the_episodes_hold_what_they_promise(episodes):
    counters = [episode.turns[-1].info for episode in episodes[: len(SCRIPTS)]]
    assert [info["tool_calls"] for info in counters] == [1, 1, 2, 1, 2, 1, 2, 0]
    assert [info["tool_failures"] for info in counters] == [0, 1, 0, 0, 1, 0, 0, 0]
    rewards = [[turn.reward for turn in episode.turns] for episode in episodes[: len(SCRIPTS)]]
    assert rewards[1] == [-0.25, 0.0] and rewards[2] == [0.125, 0.125, 1.0]
    assert episodes[7].turns[0].finish_reason.value == "length"


def test_what_a_tool_returns_is_context(found, episodes):
    _, replayed = found
    assert len(replayed.rows) >= len(episodes)
    unseen = {"<output>\n42\n</output>", "ZeroDivisionError", "sold for 798 crowns", "must be JSON"}
    trained = ""
    context = ""
    for row in replayed.rows:
        on = [t for t, kept in zip(row.token_ids, row.loss_mask, strict=True) if kept]
        off = [t for t, kept in zip(row.token_ids, row.loss_mask, strict=True) if not kept]
        trained += text_of(on)
        context += text_of(off)
    for text in unseen:
        assert text in context, text
    for part in ("<output>", "<information>", "<tool_response>", "crowns", "question"):
        assert part not in trained and part in context
    for script in SCRIPTS[:-1]:
        assert all(action in trained for action in script)


def test_rows_loss_and_gradient_are_the_references(found, episodes, model_dir):
    from transformers import AutoModelForCausalLM

    recipe, replayed = found
    model = AutoModelForCausalLM.from_pretrained(model_dir).float()
    expected = reference(recipe, expected_rows(recipe, episodes), model)
    assert measure(replayed, expected).faults == []
