"""Templates and tokenizers."""

from __future__ import annotations

import pytest

from gem_core.episodes.context import TEMPLATES, Context, Template, get_template
from gem_core.errors import RecipeError, UnknownNameError


def test_gem_templates_have_gems_first_prompts():
    ending = "<|im_end|>\n<|im_start|>assistant\n"
    boxed = "\nPlease reason step by step, and put your final answer within \\boxed{}."
    expected = {
        "qwen3_game": "<|im_start|>user\nYou are playing language games. Make valid actions to "
        f"win.\nObservation: OBS{boxed}{ending}",
        "qwen3_general": f"<|im_start|>user\nQuestion: OBS{boxed}{ending}",
        "no": "OBS",
    }
    for name, text in expected.items():
        assert Context(TEMPLATES[name]).start("OBS", {}) == text
    assert "Question: OBS\n" in Context(TEMPLATES["code"]).start("OBS", {})


def test_braces_in_observations_survive():
    assert Context(TEMPLATES["no"]).start("{observation} \\boxed{1} {x}", {}) == (
        "{observation} \\boxed{1} {x}"
    )


def test_unknown_template_is_guessed():
    with pytest.raises(UnknownNameError, match="Did you mean 'qwen3_game'"):
        get_template("qwen3_games")


def test_bad_templates_and_windows_are_refused():
    with pytest.raises(RecipeError, match="exactly once"):
        Template("t", "no slot", "{observation}")
    with pytest.raises(RecipeError, match="window"):
        Context(TEMPLATES["no"], history="window")
    with pytest.raises(RecipeError, match="window"):
        Context(TEMPLATES["no"], history="append", window=2)
    with pytest.raises(RecipeError, match="chat template"):
        get_template("chat")
