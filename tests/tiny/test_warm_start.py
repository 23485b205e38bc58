"""The shipped warm start is partly skilled, so that RL has successes to reinforce."""

from __future__ import annotations

import re

import pytest

from gem_core.evaluation.local import evaluation_episodes
from gem_core.runs.recipe.load import load_recipe
from gem_core.training.tiny import model_path


def consistent(episode):
    """For each guess, whether it fits all hints before it."""
    low = 1
    high = 10
    fits = []
    for turn, later in zip(episode.turns, [*episode.turns[1:], None], strict=True):
        boxed = re.search(r"\\boxed\{(\d+)\}", turn.action)
        guess = int(boxed[1]) if boxed else 0
        fits.append(low <= guess <= high)
        hint = later.observation if later else ""
        if "is higher" in hint:
            low = max(low, guess + 1)
        elif "is lower" in hint:
            high = min(high, guess - 1)
    return fits


@pytest.mark.slow
def test_success_is_low_and_most_guesses_follow_the_hints():
    recipe = load_recipe("guess-the-number-easy", "tiny")
    episodes = evaluation_episodes(recipe, model_path(recipe), 500)
    success = sum(e.success for e in episodes) / len(episodes)
    fits = [fit for episode in episodes for fit in consistent(episode)]
    assert 0.4 <= success <= 0.55
    assert sum(fits) / len(fits) >= 0.65
