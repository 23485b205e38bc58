"""Options of gem-core eval that would have no effect are errors, whatever the option."""

from __future__ import annotations

import argparse

import pytest

from gem_core.cli.eval_checks import _READ, refuse_idle_options
from gem_core.cli.eval_options import add_eval_options
from gem_core.cli.parser import build_parser
from gem_core.errors import GemError

GAME = "game:GuessTheNumber-v0-easy"
MODES = {
    "compare": ["--compare", "a", "b"],
    "table": ["--table", "a"],
    "rescore": ["--rescore", "a"],
    "local": [GAME, "--model", "m"],
    "player": [GAME, "--player", "expert"],
    "endpoint": [GAME, "--base-url", "http://127.0.0.1:1/v1", "--model", "m"],
}
VALUES = {"api": "completions", "body": "{}", "player": "random"}
PARSER = argparse.ArgumentParser()
add_eval_options(PARSER)
GROUPS = {
    group.title: {action.dest for action in group._group_actions} for group in PARSER._action_groups
}
OPTIONS = {
    action.dest: action
    for action in PARSER._actions
    if action.option_strings and action.dest != "help"
}
OF_ENDPOINTS = GROUPS["an OpenAI-compatible endpoint"] - {"base_url"} | {"item_tokens"}


def given(action):
    """The words of an option with a value that is not its default."""
    if action.nargs == 0:
        return [action.option_strings[-1]]
    value = VALUES.get(action.dest, "3")
    return [action.option_strings[-1], *[value] * (action.nargs or 1)]


def is_refused(words):
    arguments = build_parser().parse_args(["eval", *words])
    try:
        refuse_idle_options(arguments)
    except GemError as error:
        return str(error)
    return None


def ignores(mode, name):
    """Whether nothing reads the option."""
    if mode in _READ:
        return name not in _READ[mode]
    if name == "retry_errors":
        return True  # without --resume
    if mode == "player" and name == "base_url":
        return True
    return mode in ("local", "player") and name in OF_ENDPOINTS


TRIED = [
    (mode, name)
    for mode, words in MODES.items()
    for name in sorted(OPTIONS.keys() - _READ.keys())
    if OPTIONS[name].option_strings[-1] not in words and {mode, name} != {"endpoint", "player"}
]


@pytest.mark.parametrize(("mode", "name"), TRIED)
def test_an_option_that_nothing_reads_is_refused(mode, name):
    words = [*MODES[mode], *given(OPTIONS[name])]
    error = is_refused(words)
    assert (error is not None) == ignores(mode, name), error
    if error:
        assert error.startswith(f"--{name.replace('_', '-')} would have no effect: it goes with")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*MODES["player"], "--base-url", "http://x"], "--base-url would have no effect"),
        ([*MODES["endpoint"], "--api", "completions", "--system", "x"], "--system .* --api chat"),
        ([*MODES["local"], "--json", "--markdown"], "--markdown .* --json prints none"),
        ([*MODES["table"], "--set", "seed=3"], "--set would have no effect: .* not with --table"),
    ],
)
def test_pairs(words, message):
    with pytest.raises(GemError, match=message):
        refuse_idle_options(build_parser().parse_args(["eval", *words]))


def test_what_is_read_is_not_refused():
    words = [*MODES["endpoint"], "--api", "chat", "--system", "x", "--item-tokens", "9"]
    assert (
        is_refused([*words, "--out", "d", "--resume", "--retry-errors", "--set", "seed=1"]) is None
    )
    assert is_refused([*MODES["rescore"], "--out", "d", "--overwrite", "--json"]) is None
