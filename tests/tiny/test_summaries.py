"""A warm start imitates the summaries of a teacher that sums up, and of no other."""

from __future__ import annotations

import re

import pytest
from transformers import AutoTokenizer

from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.splits import run_envs
from gem_core.training.tiny import model_path
from gem_core.training.warm_start.episodes import expert_episodes
from gem_core.training.warm_start.settings import play_settings

GUESS = "guess-the-number-easy"
SHORT = ("model.tiny.warm_start_steps=1", "model.tiny.warm_start_batch=2")
COMPACT = (
    "context.history=compact",
    "context.compact.prompt='Sum up.'",
    "limits.max_tokens_per_turn=24",
    "limits.max_context_tokens=256",
    "model.tiny.pieces=cells",
)


DOORS = (*COMPACT, "env.0.id=memory:Doors-v0-easy", "env.0.kwargs={}", "context.compact.budget=110",
         "model.tiny.teacher=forgets")  # fmt: skip


@pytest.fixture
def episodes(empty_cache):
    """``episodes(*overrides)``: eight imitated episodes."""

    def play(*overrides):
        recipe = load_recipe(GUESS, "tiny", [*SHORT, *overrides])
        return expert_episodes(recipe, AutoTokenizer.from_pretrained(model_path(recipe)), 8)

    return play


def summaries(played):
    """Text and trained tokens of every summary."""
    found = []
    for episode in played:
        for segment in episode.segments:
            for turn, start, end in segment.spans:
                if episode.turns[turn].kind == "summary":
                    found.append((episode.turns[turn].action, sum(segment.loss_mask[start:end])))
    return found


@pytest.mark.parametrize("trained", ["true", "false"])
def test_they_are_imitated_also_where_the_run_does_not_train_them(episodes, trained):
    found = summaries(episodes(*DOORS, f"context.compact.trained={trained}"))
    assert len(found) >= 8
    assert all(tokens > 1 for _, tokens in found)
    assert all(re.fullmatch(r"Known: (nothing|[A-Z] \d(, [A-Z] \d)?)\.", text) for text, _ in found)
    assert any(text.count(",") == 1 for text, _ in found), "both doors, remembered"


def test_a_teacher_that_does_not_sum_up_teaches_no_summary(episodes):
    found = summaries(episodes(*COMPACT, "context.compact.budget=40"))
    assert found
    assert {text for text, _ in found} == {""}
    assert {tokens for _, tokens in found} == {0}


def test_what_a_teacher_sums_up_names_the_place_in_the_cache(monkeypatch):
    from gem_memory.players import Forgets

    recipe = load_recipe(GUESS, "tiny", list(DOORS))
    before = play_settings(recipe, run_envs(recipe))
    monkeypatch.setattr(Forgets, "share", 0.9)
    assert play_settings(recipe, run_envs(recipe)) != before


def test_whether_summaries_are_trained_does_not_name_the_place_in_the_cache():
    frozen, trained = (
        load_recipe(GUESS, "tiny", [*DOORS, f"context.compact.trained={value}"])
        for value in ("false", "true")
    )
    assert play_settings(frozen, run_envs(frozen)) == play_settings(trained, run_envs(trained))
