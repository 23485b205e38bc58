"""No text breaks an environment outside ``game:`` (for games: tests/envs/test_games.py)."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gem_core
from gem_core.envs._data_specs import HUB_IDS

IDS = (
    *("multi:TicTacToe-v0-hard", "multi:Nim-v0-easy", "multi:ReturnsDesk-v0"),
    *("webshop:train-text", "webshop:test-html", "webshop:train-text_rich"),
    *("math:GSM8K", "math:Geometry3K", "qa:HotpotQA", "logic:RuleTaker-d1"),
    *("rg:chain_sum", "rg:word_ladder", "rg:boxnet", "rg:rush_hour", "rg:composite"),
)
"""One id of every class, and several where the class has several ways to go."""
WORDS = st.sampled_from(
    [
        *("search[", "click[", "say[", "file[", "]", ";", "back to search", "next", "buy now"),
        *(
            "1",
            "5",
            "1 2",
            "\\frac{",
            "}",
            "{",
            "\\",
            "<answer>",
            "</answer>",
            "A+1",
            '[{"',
            "P001",
        ),
    ]
)
"""What the environments themselves react to, to get past the first test of an action."""
TEXTS = st.one_of(
    st.text(),
    st.text(st.characters(), max_size=20),  # with lone surrogates
    st.lists(st.one_of(WORDS, st.text(max_size=3)), max_size=8).map("".join),
)
SECONDS = 30.0


@pytest.mark.parametrize("env_id", IDS)
@settings(deadline=None, max_examples=30)
@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_no_text_breaks_an_environment(env_id: str, texts: list[str]) -> None:
    spec = gem_core.spec(env_id)
    sample = spec.kwargs.get("dataset") in HUB_IDS
    env = gem_core.make(env_id, **({"dataset": "sample"} if sample else {}))
    rules, _ = env.reset(seed=0)
    inner = env.random_action(env.rng)
    before, after = ("\\boxed{", "}") if "\\boxed{" in inner else ("<answer>", "</answer>")
    for text in texts:
        for action in (text, f"{before}{text}{after}"):
            begun = time.monotonic()
            obs, reward, terminated, truncated, info = env.step(action)
            assert time.monotonic() - begun < SECONDS
            assert len(obs) + len(info.get("suffix", "")) < len(rules) + 3000
            assert math.isfinite(reward) and -0.2 <= reward <= 1
            assert info.get("error") in (None, "invalid_format", "invalid_action")
            if terminated or truncated:
                assert isinstance(info["success"], bool)
                env.reset()
