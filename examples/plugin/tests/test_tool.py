"""The tool, as an agent calls it."""

from __future__ import annotations

import gem_core
import pytest
from gem_core.tools import ToolEnv, make_tool


@pytest.mark.parametrize(
    ("amount", "told", "error"),
    [
        ("37", "The largest coin is 20.", None),
        (" 1 ", "The largest coin is 1.", None),
        ("0", "Write a whole number above 0", "no_amount"),
        ("ten", "Write a whole number above 0", "no_amount"),
    ],
)
def test_a_call_is_answered(amount, told, error):
    env = ToolEnv(gem_core.make("my:Change-v0"), [make_tool("my-coin")])
    env.reset(seed=0)
    obs, reward, terminated, _, info = env.step(f"<coin>{amount}</coin>")
    assert told in obs and not terminated and reward == 0.0
    assert info["tool"]["error"] == error
