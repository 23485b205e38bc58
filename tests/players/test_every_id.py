"""Every registered id can warm-start a tiny model; data sets on the samples that they come with."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import gem_core
from gem_core.runs.recipe.load import recipe_from_dict
from gem_core.runs.recipe.recipe import Recipe
from gem_core.training.warm_start.episodes import expert_episodes, sample_actions

ON_SAMPLE = ("math", "code", "qa", "logic", "eval")
WITHOUT_IMAGES = {"math:Geometry3K"}
"""Data sets with images, which are played without them."""
EPISODES = 3


class ByteTokenizer:
    """As much of a Hugging Face tokenizer as a machine needs: id = byte + 1, and 0 ends a turn."""

    eos_token_id = 0
    name_or_path = ""
    all_special_tokens = ("<|im_end|>",)

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        parts = text.split("<|im_end|>")
        ids = [byte + 1 for byte in parts[0].encode()]
        for part in parts[1:]:
            ids += [0, *(byte + 1 for byte in part.encode())]
        return ids

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        return bytes(i - 1 for i in ids if i > 0).decode(errors="replace")

    def convert_tokens_to_ids(self, token: str) -> int:
        return 0


def recipe_of(env_id: str) -> Recipe:
    """Return the recipe of one environment."""
    kwargs: dict[str, Any] = {}
    if env_id.partition(":")[0] in ON_SAMPLE:
        kwargs["dataset"] = "sample"
    if env_id in WITHOUT_IMAGES:
        kwargs["images"] = "drop"
    tiny = {"tiny": {"expert_noise": 0.3}}
    return recipe_from_dict({"name": "r", "env": [{"id": env_id, "kwargs": kwargs}], "model": tiny})


@pytest.mark.filterwarnings("ignore::UserWarning:reasoning_gym")
@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
@pytest.mark.parametrize("env_id", gem_core.list_envs())
def test_an_expert_plays_every_id(env_id: str) -> None:
    recipe = recipe_of(env_id)
    assert sample_actions(recipe.env[0], 1)
    guessed: Counter[str] = Counter()
    episodes = expert_episodes(recipe, ByteTokenizer(), EPISODES, guessed)
    assert [len(episode.turns) > 0 for episode in episodes] == [True] * EPISODES
    assert not any(episode.stop_reason.failed for episode in episodes)
    assert not guessed[env_id]  # an expert, or the solution of the item
